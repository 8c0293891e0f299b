"""The candidate pools of a GPU Pod: the pools whose nodes can take it.

Several pools may offer the same devices. A pool is a candidate if it offers all devices that the
Pod requests, in that number, the Pod's own node selection can match its nodes, and the namespace
may request it. If no pool meets a condition, the condition excludes none, and a check reports it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import chain

from msgspec.structs import replace

from policies.kubernetes import selector as selectors
from policies.kubernetes.pod import Pod
from policies.policy import Pool
from policies.requests import (
    Condition,
    DeviceRequest,
    Exclusion,
    Scope,
    devices_in_pool,
    requests_several,
)

Conditions = dict[Condition, Callable[[Pool], bool]]
Labels = frozenset[tuple[str, tuple[str, ...]]]
"""The labels of a pool's nodes. Pools with the same labels have the same nodes."""


def with_candidates(
    pod: Pod, requests: tuple[DeviceRequest, ...], scope: Scope
) -> tuple[DeviceRequest, ...]:
    """Return the requests with their candidate pools, and why the other pools are excluded."""
    conditions: Conditions = {
        name: cache(lambda pool, meets=meets: meets(pod, pool, scope))
        for name, meets in _CONDITIONS.items()
    }
    # A node has to meet all requests that cannot be met in another way.
    certain = dict.fromkeys(
        each.pools for each in requests if each.certain and has_labels(each.pools)
    )
    common = frozenset[Labels].intersection(*map(labels_of_nodes, certain)) if certain else None
    together = _narrow(chain.from_iterable(certain), common, conditions) if common else None

    # Requests of the same pools are alike, and a Pod can have many.
    @cache
    def narrowed(
        pools: tuple[Pool, ...], certain: bool
    ) -> tuple[tuple[Pool, ...], tuple[Exclusion, ...]]:
        nodes = together if certain and has_labels(pools) else None
        nodes = nodes or _narrow(pools, labels_of_nodes(pools), conditions)
        why = {pool: nodes.get(_labels_of(pool), Exclusion(pool, "devices")) for pool in pools}
        return tuple(p for p in pools if why[p] is None), tuple(filter(None, why.values()))

    return tuple(
        replace(each, pools=pools, excluded=excluded)
        for each in requests
        for pools, excluded in [narrowed(each.pools, each.certain)]
    )


def failing(condition: Condition, pod: Pod, request: DeviceRequest, scope: Scope) -> list[Pool]:
    """Return the candidate pools of a request that do not meet a condition."""
    meets = _CONDITIONS[condition]
    return [pool for pool in request.pools if not meets(pod, pool, scope)]


def why_closed(pod: Pod, pool: Pool, scope: Scope) -> str:
    """Return why a Pod may not be on the nodes of a pool, as a clause; empty if it may."""
    for condition in ("namespace", "size"):
        if not _CONDITIONS[condition](pod, pool, scope):
            return describe(Exclusion(pool, condition))
    return ""


def has_labels(pools: Iterable[Pool]) -> bool:
    """Return whether labels identify the nodes of each pool: without, they may be any nodes."""
    for pool in pools:  # noqa: SIM110 - all() costs twice the time
        if not pool.selector:
            return False
    return True


def labels_of_nodes(pools: Iterable[Pool]) -> frozenset[Labels]:
    """Return the labels of the nodes of each pool."""
    return frozenset(map(_labels_of, pools))


def _can_select(pod: Pod, pool: Pool, _scope: Scope) -> bool:
    """Return whether the Pod's own node selection can match nodes of the pool."""
    for alternative in pod.selection():  # noqa: SIM110 - any() costs twice the time
        if pool.can_meet(alternative):
            return True
    return False


def _may_request(_pod: Pod, pool: Pool, scope: Scope) -> bool:
    return scope.may_request(pool)


def _has_size(pod: Pod, pool: Pool, scope: Scope) -> bool:
    """Return whether one Pod may have as many of the pool's devices as this one requests."""
    largest = pool.largest_request
    return largest is None or devices_in_pool(pod, pool, scope) <= largest


def _has_shares(pod: Pod, pool: Pool, _scope: Scope) -> bool:
    """Return whether each container requests at most one share of a device of the pool."""
    several = (each.name for each in pod.device_resources if requests_several(each))
    return not any(name in pool.shared_resources for name in several)


_CONDITIONS: dict[Condition, Callable[[Pod, Pool, Scope], bool]] = {
    "selection": _can_select,
    "namespace": _may_request,
    "size": _has_size,
    "shares": _has_shares,
}
"""What a candidate pool meets, in the order in which pools are excluded."""


def describe(exclusion: Exclusion) -> str:
    """Return the reason why a pool is not a candidate, as a clause."""
    return _WHY[exclusion.condition](exclusion.pool)


def describe_others(failing: Sequence[Pool], why: Condition, request: DeviceRequest) -> str:
    """Return what a finding about the first failing pool adds about the others of a request."""
    others = (*(Exclusion(pool, why) for pool in failing[1:]), *request.excluded)
    return "".join(f"; {describe(exclusion)}" for exclusion in others)


def describe_labels(pool: Pool) -> str:
    """Return the labels of the pool's nodes, for messages."""
    without = (str(each) for each in pool.match_expressions if each.is_negative)
    return ", ".join(filter(None, [selectors.describe(pool.selector), *without])) or (
        "known by their devices"
    )


def describe_selection(pools: Iterable[Pool]) -> str:
    """Return how a Pod selects the nodes of one of the pools, for use in remediation."""
    return " or ".join(f"{_selection_of(pool)} (pool {pool.name})" for pool in pools)


def _selection_of(pool: Pool) -> str:
    if all(pool.selector.values()) and not pool.without:
        example = {key: values[0] for key, values in pool.selector.items()}
        return f"nodeSelector: {json.dumps(example)}"
    return f"a required node affinity with {describe_labels(pool)}"


_WHY: dict[Condition, Callable[[Pool], str]] = {
    "devices": lambda pool: f"pool {pool.name} does not offer all devices that the Pod requests",
    "selection": lambda pool: (
        f"the Pod's node selection excludes pool {pool.name} ({describe_labels(pool)})"
    ),
    "namespace": lambda pool: f"pool {pool.name} is reserved for {pool.allowed_namespaces}",
    "size": lambda pool: (
        f"pool {pool.name} allows {pool.largest_request} "
        f"{'device' if pool.largest_request == 1 else 'devices'} per Pod"
    ),
    "shares": lambda pool: f"pool {pool.name} offers shares, and a container may request one",
}


def _narrow(
    pools: Iterable[Pool], nodes: Iterable[Labels], conditions: Conditions
) -> dict[Labels, Exclusion | None]:
    """Return, by labels, the pool and the condition that exclude a node; None if nothing does."""
    by_labels: dict[Labels, dict[Pool, None]] = {labels: {} for labels in nodes}
    for pool in pools:
        by_labels.get(_labels_of(pool), {})[pool] = None
    why: dict[Labels, Exclusion | None] = dict.fromkeys(by_labels)
    for condition, meets in conditions.items():
        remaining = [labels for labels in why if why[labels] is None]
        failing = {
            labels: Exclusion(pool, condition)
            for labels in remaining
            for pool in by_labels[labels]
            if not meets(pool)
        }
        if len(failing) < len(remaining):
            why |= failing
    return why


def _labels_of(pool: Pool) -> Labels:
    """Return the labels of the pool's nodes, or else a label that no node has."""
    without = ((f"!{each.key}", tuple(each.values or ())) for each in pool.without)
    return frozenset([*(pool.selector or {"": (pool.name,)}).items(), *without])
