"""matchConditions: what the API server may decide by itself, generated from the policy.

A Pod that neither requests a device nor touches a fence never leaves the API server, so such Pods
do not notice when gpufence is down. The conditions may ask too often and must never ask too little:
they are at most as narrow as the engine. Each is one CEL expression over ``object`` and
``request``; every optional field is guarded by ``has()``, because reading an absent one is an
error, and an error is a refusal under ``failurePolicy: Fail``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from policies.check_device_leak import VISIBLE_DEVICES
from policies.compiled import Policy
from policies.scheduling import FENCING_EFFECTS

_CONTAINER_LISTS = ("initContainers", "ephemeralContainers")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def names_devices(spec: str, *, defaulted: bool) -> str:
    """Return CEL that holds for a Pod spec whose resources or claims name a device.

    ``spec`` is CEL for the spec. Where it is ``defaulted`` (a Pod's, not a template's), the API
    server has copied limits into requests, and looking at requests is enough.
    """
    sides = ("requests",) if defaulted else ("limits", "requests")
    in_container = " || ".join(
        f'has(c.resources.{side}) && c.resources.{side}.exists(k, k.contains("/"))'
        for side in sides
    )
    container = f"has(c.resources) && ({in_container})"
    return _any(
        f"has({spec}.resourceClaims)",
        f"{spec}.containers.exists(c, {container})",
        f"has({spec}.initContainers) && {spec}.initContainers.exists(c, {container})",
    )


def touches_fence(spec: str, policy: Policy, *, with_nodes: bool) -> str:
    """Return CEL that holds for a Pod spec that reaches for a pool or for its devices.

    ``with_nodes`` says that gpufence knows the cluster's nodes: any node selection may then turn
    out to pick a pool's.
    """
    taints = [taint for pool in policy.pools for taint in pool.taints]
    fencing = [taint for taint in taints if taint.effect in FENCING_EFFECTS]
    labels = sorted({key for pool in policy.pools for key in pool.labels})
    node_affinity = f"{spec}.affinity.nodeAffinity"
    required = f"has({spec}.affinity) && has({node_affinity}) && has({node_affinity}.{_REQUIRED})"
    if with_nodes:
        selection = [
            f"has({spec}.nodeSelector)",
            f'request.operation == "CREATE" && has({spec}.nodeName)',
            required,
        ]
    else:
        terms = f"{node_affinity}.{_REQUIRED}.nodeSelectorTerms"
        in_term = (
            f"has(t.matchExpressions) && t.matchExpressions.exists(e, e.key in {_list(labels)})"
        )
        selection = [
            f"has({spec}.nodeSelector) && {spec}.nodeSelector.exists(k, k in {_list(labels)})",
            f"{required} && {terms}.exists(t, {in_term})",
        ]
    toleration = (
        '(!has(t.key) || t.key == "" || t.key in '
        f"{_list(sorted({taint.key for taint in fencing}))}) && "
        '(!has(t.effect) || t.effect == "" || t.effect in '
        f"{_list(sorted({taint.effect for taint in fencing}))})"
    )
    env = f'has(c.env) && c.env.exists(e, e.name == "{VISIBLE_DEVICES}")'
    return _any(
        *(
            [f"has({spec}.tolerations) && {spec}.tolerations.exists(t, {toleration})"]
            * bool(fencing)
        ),
        *selection,
        f"{spec}.containers.exists(c, {env})",
        *(f"has({spec}.{kind}) && {spec}.{kind}.exists(c, {env})" for kind in _CONTAINER_LISTS),
        f"has({spec}.volumes) && {spec}.volumes.exists(v, has(v.hostPath))",
        f"has({spec}.resources)",
    )


def _any(*alternatives: str) -> str:
    return " || ".join(f"({alternative})" for alternative in alternatives)


def _list(names: Iterable[str]) -> str:
    return json.dumps(list(names))
