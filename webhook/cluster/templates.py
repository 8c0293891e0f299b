"""Node templates: NodePools and NodeClaims of Karpenter, and what the cluster autoscaler reads.

Sources: ``sigs.k8s.io/karpenter/pkg/apis/v1``, and for scaling from zero the annotations and tags
of ``clusterapi`` and ``aws`` in ``k8s.io/autoscaler/cluster-autoscaler/cloudprovider``. Of node
groups, only MachineDeployments are watched; files can have others (``files``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from policies.kubernetes.core_v1 import Requirement
from policies.kubernetes.node_templates import NODE_POOL_LABEL, NodeTemplate
from policies.kubernetes.quantity import NANOS, InvalidQuantityError, parse_quantity
from policies.kubernetes.scheduling import Taint
from webhook.devices.nodes import NodeStatus, TaintObject, taints_of
from webhook.kube.collection import AnnotatedMetadata, Collection, LabeledMetadata

_MOST_NODES = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io"
# Labels that Cluster API copies from Machines to Nodes
# (https://cluster-api.sigs.k8s.io/reference/api/metadata-propagation#machine).
_COPIED = ("node-role.kubernetes.io", "node-restriction.kubernetes.io", "node.cluster.x-k8s.io")


class TemplateSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A spec with a template, or a NodeClaimSpec."""

    template: Template | None = None
    requirements: list[Requirement] | None = None
    taints: list[TaintObject] | None = None
    startup_taints: list[TaintObject] | None = None
    node_class_ref: dict[str, str] = {}
    limits: dict[str, Any] | None = None


class Template(msgspec.Struct, frozen=True):
    metadata: LabeledMetadata = LabeledMetadata()
    spec: TemplateSpec = TemplateSpec()


class TemplateObject(msgspec.Struct, frozen=True):
    """The fields that are read of a NodePool, a NodeClaim and a MachineDeployment."""

    metadata: AnnotatedMetadata
    spec: TemplateSpec = TemplateSpec()
    status: NodeStatus = NodeStatus()


def of_node_pool(item: TemplateObject) -> NodeTemplate:
    """Return the nodes that Karpenter can add for a NodePool."""
    template, name = item.spec.template or Template(), item.metadata.name
    labels = {**(template.metadata.labels or {}), NODE_POOL_LABEL: name}
    limits = devices_in(item.spec.limits or {})
    return replace(_of_karpenter(f"NodePool {name}", labels, template.spec, None), limits=limits)


def of_node_claim(item: TemplateObject) -> NodeTemplate:
    """Return the node that Karpenter has ordered."""
    labels = item.metadata.labels or {}
    return _of_karpenter(
        f"NodeClaim {item.metadata.name}", labels, item.spec, item.status.allocatable
    )


def _of_karpenter(
    name: str, labels: Mapping[str, str], spec: TemplateSpec, allocatable: Mapping[str, Any] | None
) -> NodeTemplate:
    return NodeTemplate(
        name,
        labels,
        taints_of(spec.taints),
        tuple(spec.requirements or ()),
        provider=spec.node_class_ref.get("group", ""),
        chooses=True,
        allocatable=devices_in(allocatable) if allocatable else None,
        startup_taints=taints_of(spec.startup_taints),
    )


def of_machine_deployment(
    item: TemplateObject, kind: str = "MachineDeployment"
) -> NodeTemplate | None:
    """Return the nodes that the cluster autoscaler can add; ``None`` without annotations."""
    annotations = item.metadata.annotations or {}
    given = with_prefix(f"{CAPACITY}/", annotations)
    if not given:
        return None
    template = item.spec.template or Template()
    copied = {
        key: value
        for key, value in (template.metadata.labels or {}).items()
        if key.partition("/")[0].endswith(_COPIED)
    }
    resource, count = given.get("gpu-type", ""), given.get("gpu-count", "")
    devices = devices_in({resource: count}) if resource else {}
    largest = annotations.get(_MOST_NODES, "")
    limits = {name: int(largest) * n for name, n in devices.items()} if largest.isdecimal() else {}
    return NodeTemplate(
        f"{kind} {item.metadata.key}",
        {**copied, **labels_in(given)},
        tuple(taints_in(given.get("taints", ""))),
        allocatable=devices,
        limits=limits,
    )


def labels_in(given: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that the annotations of a node group promise."""
    return dict(label.partition("=")[::2] for label in _listed(given.get("labels", "")))


def with_prefix(prefix: str, named: Mapping[str, str]) -> dict[str, str]:
    """Return what has the prefix, by the rest of its name."""
    return {k.removeprefix(prefix): v for k, v in named.items() if k.startswith(prefix)}


def _listed(text: str) -> Iterator[str]:
    return filter(None, (part.strip() for part in text.split(",")))


def taints_in(text: str) -> Iterator[Taint]:
    """Yield the taints of a text: ``key=value:effect``, separated by commas."""
    for part in _listed(text):
        name, _, effect = part.rpartition(":")
        key, _, value = name.partition("=")
        yield Taint(key, effect, value)


def devices_in(quantities: Mapping[str, Any]) -> dict[str, int]:
    """Return the extended resources among the quantities of a node."""
    devices = {}
    for name, quantity in quantities.items():
        if "/" in name:
            try:
                devices[name] = parse_quantity(quantity) // NANOS
            except InvalidQuantityError:
                continue
    return devices


_KARPENTER = "/apis/karpenter.sh/v1"
_CLUSTER_API = "/apis/cluster.x-k8s.io/v1beta1"
NODE_POOLS, NODE_CLAIMS, MACHINE_DEPLOYMENTS = (
    Collection(name, f"{api}/{name}", TemplateObject, optional=True, may_be_forbidden=True)
    for api, name in (
        (_KARPENTER, "nodepools"),
        (_KARPENTER, "nodeclaims"),
        (_CLUSTER_API, "machinedeployments"),
    )
)
