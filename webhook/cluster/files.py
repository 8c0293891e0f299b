"""The state of a cluster from files, as ``kubectl get nodes -o json`` prints its objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from policies.facts import Facts, Request
from policies.kubernetes.objects import JSONObject
from policies.policy import Policy
from webhook.cluster.manifests import Complete
from webhook.cluster.state import NAMESPACES, RUNTIME_CLASSES, ClusterState
from webhook.cluster.templates import MACHINE_DEPLOYMENTS, NODE_CLAIMS, NODE_GROUPS, NODE_POOLS
from webhook.devices.classes import DEVICE_CLASSES
from webhook.devices.nodes import NODES
from webhook.devices.slices import RESOURCE_SLICES, TAINT_RULES
from webhook.documents.document import DocumentError, raise_errors
from webhook.documents.objects import Manifest
from webhook.kube.collection import Collection, Store

_SLICE = "ResourceSlice"
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
    for template in NODE_GROUPS[kind](obj) if kind in NODE_GROUPS else ():
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
