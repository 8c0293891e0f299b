"""The state of a cluster from files, as ``kubectl get nodes -o json`` prints its objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from policies.facts import Facts, Request
from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.objects import JSONObject
from policies.policy import Policy
from webhook.cluster.manifests import Complete
from webhook.cluster.state import NAMESPACES, RUNTIME_CLASSES, ClusterState
from webhook.cluster.templates import (
    CAPACITY,
    MACHINE_DEPLOYMENTS,
    NODE_CLAIMS,
    NODE_POOLS,
    TemplateObject,
    devices_in,
    labels_in,
    of_machine_deployment,
    taints_in,
    with_prefix,
)
from webhook.devices.classes import DEVICE_CLASSES
from webhook.devices.nodes import NODES, TaintObject, taints_of
from webhook.devices.slices import RESOURCE_SLICES, TAINT_RULES
from webhook.documents.document import DocumentError, raise_errors
from webhook.documents.objects import Manifest
from webhook.kube.collection import AnnotatedMetadata, Collection, LabeledMetadata, Store

_SLICE = "ResourceSlice"
_TAG = "k8s.io/cluster-autoscaler/node-template/"
_KINDS: dict[tuple[str, str], Collection[Any]] = {
    ("", "Node"): NODES,
    ("", "Namespace"): NAMESPACES,
    ("node.k8s.io", "RuntimeClass"): RUNTIME_CLASSES,
    ("resource.k8s.io", "DeviceClass"): DEVICE_CLASSES,
    ("resource.k8s.io", "ResourceSlice"): RESOURCE_SLICES,
    ("resource.k8s.io", "DeviceTaintRule"): TAINT_RULES,
    ("karpenter.sh", "NodePool"): NODE_POOLS,
    ("karpenter.sh", "NodeClaim"): NODE_CLAIMS,
    ("cluster.x-k8s.io", "MachineDeployment"): MACHINE_DEPLOYMENTS,
}
"""The collections by group and kind."""
PATHS = frozenset(collection.path for collection in _KINDS.values())


def facts_of_nodes(
    manifests: Iterable[Manifest], policy: Policy, warn: Callable[[str], None]
) -> Complete | None:
    """Return a function that adds the nodes and the node templates in a file to other facts.

    The nodes have the policy's devices, and those of ResourceSlices and DeviceClasses in the file.
    Other kinds are ignored. ``warn`` is called with each problem. Without nodes and templates,
    there are no facts.

    Raises:
        InputError: the file is partly invalid.
    """
    state = state_of(manifests, policy)
    if not (len(state.nodes) or state.templates):
        return None
    for problem in state.offers.problems:
        warn(problem)
    nodes, templates = state.nodes.index, state.templates
    provided, shares = state.offers.by_resource, state.offers.published.host_shares

    def complete(_request: Request, facts: Facts, _obj: JSONObject) -> Facts:
        classes = {**provided, **facts.extended_resource_classes}
        return replace(
            facts,
            nodes=nodes,
            templates=templates,
            extended_resource_classes=classes,
            host_shares=shares,
        )

    return complete


def state_of(manifests: Iterable[Manifest], policy: Policy | None = None) -> ClusterState:
    """Return the state of a cluster that has these objects.

    Raises:
        InputError: an object is invalid; with a line for each.
    """
    state = ClusterState(policy)
    errors = []
    # ResourceSlices are read by what DeviceClasses select.
    for manifest in sorted(manifests, key=lambda each: (each.value or {}).get("kind") == _SLICE):
        error, obj = manifest.error, manifest.value or {}
        if error is None:
            try:
                put(state, obj)
            except ValueError as problem:
                kind = obj.get("kind")
                error = DocumentError(f"is not a valid {kind}: {problem}", line=manifest.line)
        errors.append((manifest.document, error))
    raise_errors(errors)
    return state


def put(state: ClusterState, obj: JSONObject) -> None:
    """Store an object in parsed JSON or YAML; other kinds are ignored.

    Raises:
        ValueError: the object has no name, or a field is missing or of another type.
    """
    group = str(obj.get("apiVersion")).rpartition("/")[0]
    kind = group, str(obj.get("kind"))
    for template in _NODE_GROUPS[kind](obj) if kind in _NODE_GROUPS else ():
        state.template_stores[MACHINE_DEPLOYMENTS].keep(template.name, template)
    collection = _KINDS.get(kind)
    if collection is None:
        return
    item = msgspec.convert(obj, collection.item)
    if not item.metadata.name:
        raise ValueError("it has no name")
    stores: dict[Collection[Any], Store[Any]] = {
        **state.offers.stores,
        NAMESPACES: state.namespaces,
        RUNTIME_CLASSES: state.runtime_classes,
        **state.template_stores,
    }
    stores[collection].put(item)


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
    given = with_prefix(f"{CAPACITY}/", annotations)
    count = given.get("gpu-count") or annotations.get("machine.openshift.io/GPU", "0")
    devices = {given.get("gpu-type", "nvidia.com/gpu"): count} if int(count) else {}
    yield NodeTemplate(
        f"MachineSet {item.metadata.key}",
        {**(machine.metadata.labels or {}), **labels_in(given)},
        (*taints_of(machine.taints), *taints_in(given.get("taints", ""))),
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
        labels = {key: group.name, **group.labels, **with_prefix(f"{_TAG}label/", group.tags)}
        if group.instance_type and group.instance_type != "mixed":
            labels["node.kubernetes.io/instance-type"] = group.instance_type
        # As a map, and in tags, the value and the effect are one text.
        texts = with_prefix(f"{_TAG}taint/", group.tags)
        taints = group.taints if isinstance(group.taints, list) else None
        texts |= group.taints if isinstance(group.taints, dict) else {}
        resources = with_prefix(f"{_TAG}resources/", group.tags)
        yield NodeTemplate(
            f"node group {group.name}",
            labels,
            (*taints_of(taints), *(t for key, v in texts.items() for t in taints_in(f"{key}={v}"))),
            allocatable=devices_in(resources) or None,
        )


_NODE_GROUPS: dict[tuple[str, str], Callable[[JSONObject], Iterable[NodeTemplate]]] = {
    ("cluster.x-k8s.io", "MachineSet"): _of_cluster_api,
    ("cluster.x-k8s.io", "MachinePool"): _of_cluster_api,
    ("machine.openshift.io", "MachineSet"): _of_openshift,
    ("eksctl.io", "ClusterConfig"): _of_eksctl,
}
"""By group and kind, the node templates of an object in a file."""
