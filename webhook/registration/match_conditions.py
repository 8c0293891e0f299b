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
from policies.rules.check_device_leak import (
    CDI_PREFIX,
    DEVICE_MOUNTS,
    LEGACY_IMAGE,
    visible_devices_variables,
)


def names_devices(spec: str, *, defaulted: bool) -> str:
    """Return CEL that holds for a Pod spec whose resources or claims name a device.

    ``spec`` is CEL for the spec. Where it is ``defaulted`` (a Pod's, not a template's), the API
    server has copied limits into requests, and looking at requests is enough.
    """
    container = _device(defaulted)
    return _any(
        f"has({spec}.resourceClaims)",
        f"{spec}.containers.exists(c, {container})",
        f"has({spec}.initContainers) && {spec}.initContainers.exists(c, {container})",
    )


def concerns(spec: str, policy: Policy, *, defaulted: bool) -> str:
    """Return CEL that holds for a Pod spec that names a device, or names a pool's taint or label.

    For a plain Pod, every alternative is evaluated.
    """
    variables = _list({*visible_devices_variables(policy), LEGACY_IMAGE})
    env = f"has(c.env) && c.env.exists(e, e.name in {variables})"
    mounted = _any(
        f"m.mountPath.contains({json.dumps(DEVICE_MOUNTS)})",
        'has(m.subPath) && m.subPath.contains("dev")',
    )
    mount = f"has(c.volumeMounts) && c.volumeMounts.exists(m, {mounted})"
    container = _any(_device(defaulted), env, mount)
    debug = _any(env, mount)
    return _any(
        f"has({spec}.resourceClaims)",
        f"has({spec}.resources) && {_device_at(f'{spec}.resources', ('limits', 'requests'))}",
        *_pool_labels(spec, policy),
        *_tolerations(spec, policy),
        f"{spec}.containers.exists(c, {container})",
        f"has({spec}.initContainers) && {spec}.initContainers.exists(c, {container})",
        f"has({spec}.ephemeralContainers) && {spec}.ephemeralContainers.exists(c, {debug})",
        f"has({spec}.volumes) && {spec}.volumes.exists(v, {_device_directory('v')})",
        adds_devices(f"{spec.removesuffix('spec')}metadata"),
    )


def adds_devices(metadata: str) -> str:
    """Return CEL that holds for metadata of a Pod with annotations that name devices."""
    annotations = f"{metadata}.annotations"
    has_some = f"has({metadata}) && has({annotations})"
    return f"{has_some} && {annotations}.exists(k, k.startsWith({json.dumps(CDI_PREFIX)}))"


def selects_nodes(spec: str, *, defaulted: bool, with_nodes: bool) -> str:
    """Return CEL that holds for a Pod spec that may select a pool's nodes by other labels or names.

    ``with_nodes`` says that gpufence knows the cluster's nodes; without, it judges no node
    selection. It rejects ``nodeName`` in either case, unless it knows the node: the scheduler does
    not check taints then. Of an existing Pod that is ``defaulted``, the node is fixed.
    """
    named = f"has({spec}.nodeName)"
    alternatives = [f'request.operation == "CREATE" && {named}' if defaulted else named]
    if with_nodes:
        ignored = _list(EVERY_NODE)
        alternatives += [
            f"has({spec}.nodeSelector) && {spec}.nodeSelector.exists(k, !(k in {ignored}))",
            _has_required_terms(spec),
        ]
    return _any(*alternatives)


def differs(field: str) -> str:
    """Return CEL that holds for a new object, and for one whose ``field`` is another than before.

    ``field`` is what the engine judges, as CEL below the object (``spec.template``). Where it stays
    the same, every finding is one that the object had already, and those never block: finalizers
    go, labels change and replicas scale while no replica responds.
    """
    return f'request.operation == "CREATE" || object.{field} != oldObject.{field}'


def differs_where_there_is(field: str) -> str:
    """Return the same for a ``field`` that an object need not have."""
    there = f"has(object.{field}) && has(oldObject.{field})"
    return f'request.operation == "CREATE" || !({there}) || object.{field} != oldObject.{field}'


def _device(defaulted: bool) -> str:
    """Return CEL that holds for a container ``c`` whose resources name a device.

    Device resources carry a domain (``nvidia.com/gpu``), the others do not.
    """
    sides = ("requests",) if defaulted else ("limits", "requests")
    return f"has(c.resources) && {_device_at('c.resources', sides)}"


def _device_at(resources: str, sides: Iterable[str]) -> str:
    return _any(
        *(
            f'has({resources}.{side}) && {resources}.{side}.exists(k, k.contains("/"))'
            for side in sides
        )
    )


def _device_directory(v: str) -> str:
    """Return CEL that holds for a volume of the node's device files, wherever they are."""
    return f'has({v}.hostPath) && {v}.hostPath.path.contains("dev")'


def _pool_labels(spec: str, policy: Policy) -> tuple[str, ...]:
    labels = _list({key for pool in policy.pools for key in pool.node_selector})
    in_term = f"has(t.matchExpressions) && t.matchExpressions.exists(e, e.key in {labels})"
    terms = f"{spec}.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
    return (
        f"has({spec}.nodeSelector) && {spec}.nodeSelector.exists(k, k in {labels})",
        f"{_has_required_terms(spec)} && {terms}.exists(t, {in_term})",
    )


def _has_required_terms(spec: str) -> str:
    node_affinity = f"{spec}.affinity.nodeAffinity"
    return f"has({spec}.affinity) && has({node_affinity}) && has({node_affinity}.{REQUIRED})"


def _tolerations(spec: str, policy: Policy) -> tuple[str, ...]:
    fencing = [t for pool in policy.pools for t in pool.taints if t.effect in FENCING_EFFECTS]
    if not fencing:
        return ()
    # An empty key or effect is that of every taint.
    keys = _list({"", *(t.key for t in fencing)})
    effects = _list({"", *(t.effect for t in fencing)})
    toleration = f"(!has(t.key) || t.key in {keys}) && (!has(t.effect) || t.effect in {effects})"
    return (f"has({spec}.tolerations) && {spec}.tolerations.exists(t, {toleration})",)


def _any(*alternatives: str) -> str:
    return "(" + " || ".join(f"({alternative})" for alternative in alternatives) + ")"


def _list(names: Iterable[str]) -> str:
    return json.dumps(sorted(names))
