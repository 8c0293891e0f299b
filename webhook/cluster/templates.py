"""Node templates: NodePools and NodeClaims of Karpenter, and what the cluster autoscaler reads.

Sources: ``sigs.k8s.io/karpenter/pkg/apis/v1``, and for scaling from zero the annotations and tags
of ``clusterapi`` and ``aws`` in ``k8s.io/autoscaler/cluster-autoscaler/cloudprovider``. Of node
groups, only MachineDeployments are watched. Files can have the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from policies.kubernetes.core_v1 import Requirement
from policies.kubernetes.node_templates import NODE_POOL_LABEL, NodeTemplate
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.quantity import NANOS, InvalidQuantityError, parse_quantity
from policies.kubernetes.scheduling import Taint
from webhook.devices.nodes import NodeStatus, TaintObject, taints_of
from webhook.kube.collection import AnnotatedMetadata, Collection, LabeledMetadata

_MOST_NODES = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
_CAPACITY = "capacity.cluster-autoscaler.kubernetes.io"
_TAG = "k8s.io/cluster-autoscaler/node-template/"
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
    given = _with_prefix(f"{_CAPACITY}/", annotations)
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
        {**copied, **_labels(given)},
        tuple(_taints(given.get("taints", ""))),
        allocatable=devices,
        limits=limits,
    )


def _labels(given: Mapping[str, str]) -> dict[str, str]:
    return dict(label.partition("=")[::2] for label in _listed(given.get("labels", "")))


def _with_prefix(prefix: str, named: Mapping[str, str]) -> dict[str, str]:
    """Return what has the prefix, by the rest of its name."""
    return {k.removeprefix(prefix): v for k, v in named.items() if k.startswith(prefix)}


def _of_cluster_api(obj: JSONObject) -> Iterator[NodeTemplate]:
    item = msgspec.convert(obj, TemplateObject)
    # A MachineDeployment owns the MachineSets of its revisions.
    if not obj["metadata"].get("ownerReferences"):
        found = of_machine_deployment(item, obj["kind"])
        yield from (found,) if found else ()


class _Machine(msgspec.Struct, frozen=True):
    metadata: LabeledMetadata = LabeledMetadata()
    taints: list[TaintObject] | None = None


class _MachineTemplate(msgspec.Struct, frozen=True):
    spec: _Machine = _Machine()


class _MachineSetSpec(msgspec.Struct, frozen=True):
    template: _MachineTemplate = _MachineTemplate()


class _MachineSet(msgspec.Struct, frozen=True):
    """A MachineSet of OpenShift: its nodes get labels and taints of the template's spec."""

    metadata: AnnotatedMetadata
    spec: _MachineSetSpec = _MachineSetSpec()


def _of_openshift(obj: JSONObject) -> Iterator[NodeTemplate]:
    item = msgspec.convert(obj, _MachineSet)
    machine, annotations = item.spec.template.spec, item.metadata.annotations or {}
    given = _with_prefix(f"{_CAPACITY}/", annotations)
    count = given.get("gpu-count") or annotations.get("machine.openshift.io/GPU", "0")
    devices = {given.get("gpu-type", "nvidia.com/gpu"): count} if int(count) else {}
    yield NodeTemplate(
        f"MachineSet {item.metadata.key}",
        {**(machine.metadata.labels or {}), **_labels(given)},
        (*taints_of(machine.taints), *_taints(given.get("taints", ""))),
        allocatable=devices_in(devices),
    )


class _NodeGroup(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    instance_type: str = ""
    labels: dict[str, str] = {}
    taints: list[TaintObject] | dict[str, str] | None = None
    tags: dict[str, str] = {}


class _ClusterConfig(msgspec.Struct, frozen=True, rename="camel"):
    """A cluster of eksctl."""

    node_groups: list[_NodeGroup] = []
    managed_node_groups: list[_NodeGroup] = []


def _of_eksctl(obj: JSONObject) -> Iterator[NodeTemplate]:
    cluster = msgspec.convert(obj, _ClusterConfig)
    groups = [(each, "alpha.eksctl.io/nodegroup-name") for each in cluster.node_groups]
    groups += [(each, "eks.amazonaws.com/nodegroup") for each in cluster.managed_node_groups]
    for group, key in groups:
        labels = {key: group.name, **group.labels, **_with_prefix(f"{_TAG}label/", group.tags)}
        if group.instance_type and group.instance_type != "mixed":
            labels["node.kubernetes.io/instance-type"] = group.instance_type
        # As a map, and in tags, the value and the effect are one text.
        texts = _with_prefix(f"{_TAG}taint/", group.tags)
        taints = group.taints if isinstance(group.taints, list) else None
        texts |= group.taints if isinstance(group.taints, dict) else {}
        resources = _with_prefix(f"{_TAG}resources/", group.tags)
        yield NodeTemplate(
            f"node group {group.name}",
            labels,
            (*taints_of(taints), *(t for key, v in texts.items() for t in _taints(f"{key}={v}"))),
            allocatable=devices_in(resources) or None,
        )


NODE_GROUPS: dict[tuple[str, str], Callable[[JSONObject], Iterable[NodeTemplate]]] = {
    ("cluster.x-k8s.io", "MachineSet"): _of_cluster_api,
    ("cluster.x-k8s.io", "MachinePool"): _of_cluster_api,
    ("machine.openshift.io", "MachineSet"): _of_openshift,
    ("eksctl.io", "ClusterConfig"): _of_eksctl,
}
"""By group and kind, the node templates of an object in a file."""


def _listed(text: str) -> Iterator[str]:
    return filter(None, (part.strip() for part in text.split(",")))


def _taints(text: str) -> Iterator[Taint]:
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
