"""matchConditions: what the API server may decide by itself, generated from the policy.

A Pod that neither requests a device nor touches a fence never leaves the API server, so such Pods
do not notice when gpufence is down. The conditions may match too much and must never match too
little: they are at most as narrow as the engine. Each is one CEL expression over ``object`` and
``request``, and must not fail for any valid object, since a failure rejects the request under
``failurePolicy: Fail``. So every field that the API leaves out when it is empty is guarded by
``has()``; the others (``containers``, an ``env``'s ``name``, an expression's ``key``) are always
there (``k8s.io/api/core/v1``, the ``omitempty`` of each field).

The API server evaluates them for every Pod: each list is walked once, for one plain Pod all
alternatives are, and ``in`` a constant list costs less than one ``==``. Most of what a condition
costs does not depend on its text, though, and cannot be avoided: the API server first converts the
object, once for each webhook (``k8s.io/apiserver/pkg/admission/plugin/cel``, ``newActivation``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from policies.kubernetes.scheduling import FENCING_EFFECTS, REQUIRED
from policies.policy import Policy
from policies.reach import EVERY_NODE
from policies.requests import IMPLICIT_RESOURCE_PREFIX
from policies.rules.check_device_leak import (
    CDI_PREFIX,
    DEVICE_MOUNTS,
    LEGACY_IMAGE,
    device_files,
    visible_devices_variables,
)
from webhook.registration.admission_policies.cel import any_of, is_daemon_set

NODES_GROUP = "system:nodes"
"""The group of every kubelet (k8s.io/apiserver, ``user.NodesGroup``)."""


def names_devices(policy: Policy) -> str:
    """Return CEL that holds for a Pod whose resources, claims or annotations name a device."""
    spec, container = "object.spec", _device(policy, defaulted=True)
    return any_of(
        *_claims(spec, policy),
        f"{spec}.containers.exists(c, {container})",
        f"has({spec}.initContainers) && {spec}.initContainers.exists(c, {container})",
        *_annotated("object.metadata", policy),
    )


def concerns(spec: str, policy: Policy, kinds: frozenset[str]) -> str:
    """Return CEL that holds for a Pod spec that names a device, or names a pool's taint or label.

    ``kinds`` are those of the objects. Node agents, the Pods of a DaemonSet that tolerate every
    taint, are left to ``selects_nodes``. For a plain Pod, every alternative is evaluated.
    """
    defaulted = "Pod" in kinds
    variables = _list({*visible_devices_variables(policy), LEGACY_IMAGE})
    env = f"has(c.env) && c.env.exists(e, e.name in {variables})"
    mounted = any_of(
        f"m.mountPath.contains({json.dumps(DEVICE_MOUNTS)})",
        'has(m.subPath) && m.subPath.contains("dev/")',
    )
    mount = f"has(c.volumeMounts) && c.volumeMounts.exists(m, {mounted})"
    container = any_of(_device(policy, defaulted=defaulted), env, mount)
    debug = any_of(env, mount)
    volume = f"has(v.hostPath) && v.hostPath.path.matches({json.dumps(device_directory(policy))})"
    resources = f"{spec}.resources"
    return any_of(
        *_claims(spec, policy),
        f"has({resources}) && {_device_at(resources, ('limits', 'requests'), policy)}",
        *_pool_labels(spec, policy),
        *_tolerations(spec, policy, any_of(*is_daemon_set(kinds))),
        f"{spec}.containers.exists(c, {container})",
        f"has({spec}.initContainers) && {spec}.initContainers.exists(c, {container})",
        f"has({spec}.ephemeralContainers) && {spec}.ephemeralContainers.exists(c, {debug})",
        f"has({spec}.volumes) && {spec}.volumes.exists(v, {volume})",
        adds_devices(f"{spec.removesuffix('spec')}metadata"),
        *_annotated(f"{spec.removesuffix('spec')}metadata", policy),
    )


def adds_devices(metadata: str) -> str:
    """Return CEL that holds for metadata of a Pod with annotations that name devices."""
    return _has_annotation(metadata, f"k.startsWith({json.dumps(CDI_PREFIX)})")


def differs_in_requests(policy: Policy) -> tuple[str, ...]:
    """Return CEL that holds for a Pod whose annotations request something else than before.

    Without its annotation, a Pod that still waits for a node is no GPU Pod.
    """
    keys = {key for annotation in policy.pools_of_annotations for key in annotation.keys}
    if not keys:
        return ()
    new, old = (_value("k", f"{obj}.metadata.annotations") for obj in ("object", "oldObject"))
    return (f"{_list(keys)}.exists(k, {new} != {old})",)


def names_node(spec: str, kinds: frozenset[str]) -> str:
    """Return CEL that holds for a Pod spec that names its node, unless a node sends it.

    The scheduler does not see such a Pod, so no taint keeps it off a node. A kubelet also names the
    node of its mirror Pods, and must never wait. Of an existing Pod, the node is fixed.
    """
    groups = "request.userInfo.groups"
    by_node = f"has({groups}) && {json.dumps(NODES_GROUP)} in {groups}"
    return f"{_named(spec, kinds)} && !({by_node})"


def _named(spec: str, kinds: frozenset[str]) -> str:
    named = f"has({spec}.nodeName)"
    return f'request.operation == "CREATE" && {named}' if "Pod" in kinds else named


def selects_nodes(spec: str, kinds: frozenset[str], *, with_nodes: bool) -> str:
    """Return CEL that holds for a Pod spec that may select a pool's nodes by other labels or names.

    It also holds for node agents and for mirror Pods. ``with_nodes`` says that gpufence knows the
    cluster's nodes; without, it judges no node selection.
    """
    alternatives = [_named(spec, kinds)]
    if agents := tuple(is_daemon_set(kinds)):
        every_taint = f"has({spec}.tolerations) && {spec}.tolerations.exists(t, !has(t.key))"
        alternatives.append(f"{every_taint} && {any_of(*agents)}")
    if with_nodes:
        ignored = _list(EVERY_NODE)
        alternatives += [
            f"has({spec}.nodeSelector) && {spec}.nodeSelector.exists(k, !(k in {ignored}))",
            _has_required_terms(spec),
        ]
    return any_of(*alternatives)


def differs(field: str) -> str:
    """Return CEL that holds for a new object, and for one whose ``field`` is another than before.

    ``field`` is what the engine judges, as CEL below the object (``spec.template``). Where it stays
    the same, every finding is one that the object had already, and those never block: finalizers
    go, labels change and replicas scale while no replica responds.
    """
    return f'request.operation == "CREATE" || object.{field} != oldObject.{field}'


def differs_where_there_is(field: str) -> str:
    """Return the same for a ``field`` that an object need not have."""
    both_exist = f"has(object.{field}) && has(oldObject.{field})"
    return (
        f'request.operation == "CREATE" || !({both_exist}) || object.{field} != oldObject.{field}'
    )


def _claims(spec: str, policy: Policy) -> tuple[str, ...]:
    return (f"has({spec}.resourceClaims)",) if policy.pools_of_class else ()


def _annotated(metadata: str, policy: Policy) -> tuple[str, ...]:
    """Return CEL that holds for metadata with an annotation that requests a device.

    For any scheduler: another mutating webhook may set ``schedulerName`` after this one.
    """
    keys = {key for annotation in policy.pools_of_annotations for key in annotation.annotations}
    if not keys:
        return ()
    return (_has_annotation(metadata, f"k in {_list(keys)}"),)


def _has_annotation(metadata: str, condition: str) -> str:
    """Return CEL that holds for metadata with an annotation whose key ``k`` meets a condition."""
    annotations = f"{metadata}.annotations"
    return f"has({metadata}) && has({annotations}) && {annotations}.exists(k, {condition})"


def _value(key: str, mapping: str) -> str:
    """Return CEL for the value of a key in a mapping of strings, or an empty string."""
    return f'(has({mapping}) && {key} in {mapping} ? {mapping}[{key}] : "")'


def _device(policy: Policy, *, defaulted: bool) -> str:
    """Return CEL that holds for a container ``c`` whose resources may name a device.

    For a Pod, unlike a template, the API server has ``defaulted`` requests from limits.
    """
    sides = ("requests",) if defaulted else ("limits", "requests")
    return f"has(c.resources) && {_device_at('c.resources', sides, policy)}"


def _device_at(resources: str, sides: Iterable[str], policy: Policy) -> str:
    """Return CEL that holds for resources that may name a device.

    Any extended resource may be one with a misspelled name. An implicit name of a device class is
    one if a pool has the class.
    """
    prefix = json.dumps(IMPLICIT_RESOURCE_PREFIX)
    implicit = _list(f"{IMPLICIT_RESOURCE_PREFIX}{name}" for name in policy.pools_of_class)
    named = f'k.contains("/") && (!k.startsWith({prefix}) || k in {implicit})'
    return any_of(
        *(f"has({resources}.{side}) && {resources}.{side}.exists(k, {named})" for side in sides)
    )


def device_directory(policy: Policy) -> str:
    """Return a regular expression for paths of the pools' device files, or of a whole /dev.

    It finds every path that the engine may judge, also before normalization; the engine puts the
    subPath of a mount behind a whole /dev.
    """
    return f"(^|/)dev([./]*$|/[./]*({device_files(policy)}|char)(/|$))"


def _pool_labels(spec: str, policy: Policy) -> tuple[str, ...]:
    labels = _list({key for pool in policy.pools for key in pool.node_selector})
    # A node without the label meets the other operators, so that they select no pool.
    selecting = f'e.key in {labels} && !(e.operator in ["NotIn", "DoesNotExist"])'
    in_term = f"has(t.matchExpressions) && t.matchExpressions.exists(e, {selecting})"
    terms = f"{spec}.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
    return (
        f"has({spec}.nodeSelector) && {spec}.nodeSelector.exists(k, k in {labels})",
        f"{_has_required_terms(spec)} && {terms}.exists(t, {in_term})",
    )


def _has_required_terms(spec: str) -> str:
    node_affinity = f"{spec}.affinity.nodeAffinity"
    return f"has({spec}.affinity) && has({node_affinity}) && has({node_affinity}.{REQUIRED})"


def _tolerations(spec: str, policy: Policy, is_agent: str) -> tuple[str, ...]:
    fencing = [t for pool in policy.pools for t in pool.taints if t.effect in FENCING_EFFECTS]
    if not fencing:
        return ()
    # Without a key or an effect, it is for every taint.
    keys = _list({t.key for t in fencing})
    effects = _list({t.effect for t in fencing})
    key = f"has(t.key) ? t.key in {keys} : !{is_agent}"
    toleration = f"({key}) && (!has(t.effect) || t.effect in {effects})"
    return (f"has({spec}.tolerations) && {spec}.tolerations.exists(t, {toleration})",)


def _list(names: Iterable[str]) -> str:
    return json.dumps(sorted(names))
