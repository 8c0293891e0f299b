"""What files tell of a cluster: objects as ``kubectl get -o json`` prints them, or as people write
them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import replace

from policies.facts import NAMESPACE_LABEL, Facts, Request
from policies.kubernetes.claims import Claim
from policies.kubernetes.core_v1 import PodSpec
from policies.kubernetes.objects import (
    JSONObject,
    MalformedObjectError,
    ObjectKey,
    mapping,
)
from policies.kubernetes.paths import descend, text_at
from policies.kubernetes.workload import convert
from policies.policy import Policy
from webhook.cluster.state import NAMESPACES, RUNTIME_CLASSES, ClusterState
from webhook.cluster.templates import MACHINE_DEPLOYMENTS, NODE_CLAIMS, NODE_POOLS
from webhook.kube.claims import GROUP, read_claim
from webhook.kube.collection import Collection, Store
from webhook.kube.nodes import NODES
from webhook.kube.published import DEVICE_CLASSES, RESOURCE_SLICES, TAINT_RULES
from webhook.tools.documents.document import DocumentError, raise_errors
from webhook.tools.documents.objects import Manifest

Complete = Callable[[Request, Facts, JSONObject], Facts]
"""Adds facts about the cluster to those about one object."""

_FACTS = re.compile("Namespace|ResourceClaim|DeviceClass|ComputeDomain|RuntimeClass")
"""The kinds of the objects that are facts for Pods."""

_COMPUTE_DOMAINS = "resource.nvidia.com"
_CHANNEL = "compute-domain-default-channel.nvidia.com"

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
    Other kinds are ignored. ``warn`` is called with each problem. Without nodes, there are no
    facts.

    Raises:
        InputError: the file is partly invalid.
    """
    state = state_of(manifests, policy)
    if not len(state.nodes):
        return None
    for problem in state.slices.problems:
        warn(problem)
    nodes, templates = state.nodes.index, state.templates
    provided = state.device_classes.by_resource

    def complete(_request: Request, facts: Facts, _obj: JSONObject) -> Facts:
        classes = {**provided, **facts.extended_resource_classes}
        return replace(facts, nodes=nodes, templates=templates, extended_resource_classes=classes)

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
    collection = _KINDS.get((group, str(obj.get("kind"))))
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


def facts_among(manifests: Iterable[Manifest], namespace: str) -> Callable[[str], Facts]:
    """Return a function from a namespace to the facts there, which objects are for Pods.

    These are claims, claim templates, device classes, namespaces and RuntimeClasses. Objects
    without a namespace are in ``namespace``.
    """
    values = (manifest.value for manifest in manifests if manifest.value is not None)
    objects = [value for value in values if _FACTS.search(text_at(value, "kind"))]
    claims, templates, classes = read_claims(
        (text_at(obj, "metadata", "namespace") or namespace, obj) for obj in objects
    )
    labels: dict[str, JSONObject] = {}
    for obj in objects:
        if obj.get("kind") == "Namespace" and obj.get("apiVersion") == "v1":
            name = text_at(obj, "metadata", "name")
            written = mapping(descend(obj, ("metadata", "labels")))
            labels[name] = {**written, NAMESPACE_LABEL: name}

    scheduling = dict(_scheduling(objects))

    @cache
    def facts_in(name: str) -> Facts:
        return Facts(
            claims=claims,
            claim_templates=templates,
            extended_resource_classes=classes,
            namespace_labels=labels.get(name),
            runtime_scheduling=scheduling,
        )

    return facts_in


def read_claims(
    objects: Iterable[tuple[str, JSONObject]],
) -> tuple[dict[ObjectKey, Claim], dict[ObjectKey, Claim], dict[str, str]]:
    """Return claims, claim templates and extended resource classes among ``objects``.

    Each object comes with the namespace it is in; the results are the fields ``claims``,
    ``claim_templates`` and ``extended_resource_classes`` of ``Facts``. Other kinds are passed over.
    For a ComputeDomain, NVIDIA's DRA driver makes the ResourceClaimTemplate that it names
    (NVIDIA/k8s-dra-driver-gpu, ``templates/compute-domain-workload-claim-template.tmpl.yaml``).
    """
    claims: dict[ObjectKey, Claim] = {}
    templates: dict[ObjectKey, Claim] = {}
    classes: dict[str, str] = {}
    for namespace, obj in objects:
        group = str(obj.get("apiVersion")).partition("/")[0]
        name, spec = mapping(obj.get("metadata")).get("name"), mapping(obj.get("spec"))
        if group == _COMPUTE_DOMAINS and obj.get("kind") == "ComputeDomain":
            made = mapping(mapping(spec.get("channel")).get("resourceClaimTemplate")).get("name")
            if isinstance(made, str):
                templates[namespace, made] = Claim((frozenset({_CHANNEL}),))
        if group != GROUP:
            continue
        if not isinstance(name, str):
            continue
        match obj.get("kind"):
            case "ResourceClaim":
                claims[namespace, name] = read_claim(spec, obj.get("status"))
            case "ResourceClaimTemplate":
                templates[namespace, name] = read_claim(spec.get("spec"))
            case "DeviceClass" if isinstance(spec.get("extendedResourceName"), str):
                classes[spec["extendedResourceName"]] = name
    return claims, templates, classes


def _scheduling(objects: Iterable[JSONObject]) -> Iterator[tuple[str, PodSpec]]:
    """Yield the RuntimeClasses that add tolerations or a node selector to their Pods."""
    for obj in objects:
        if obj.get("kind") == "RuntimeClass":
            with suppress(MalformedObjectError):
                added = convert(mapping(obj.get("scheduling")), PodSpec)
                if added.tolerations or added.node_selector:
                    yield text_at(obj, "metadata", "name"), added
