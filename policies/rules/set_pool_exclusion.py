"""Node affinity that keeps a Pod off GPU nodes that it may not use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, product

from policies.context import Context
from policies.kubernetes.core_v1 import NodeSelectorTerm, Requirement
from policies.kubernetes.editor import Addition
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import Alternative, is_wildcard, required_terms
from policies.kubernetes.selector import can_meet
from policies.policy import Pool
from policies.pool_nodes import nodes_of_pools
from policies.reach import (
    is_daemon_set_pod,
    named_pools,
    opened_without_labels,
    pools_by_toleration,
)
from policies.rules.set_pool_node_affinity import TERMS, affinity_of
from policies.rules.set_pool_toleration import toleration

ID = "pool-exclusion"
SUMMARY = "the node affinity that keeps the Pod off the nodes of a pool that it may not use"

_MOST_WAYS = 16
"""The most terms that one becomes, where pools have two labels or more."""


def changes(pod: Pod, context: Context) -> Iterable[Addition]:
    """Exclude the pools that the Pod may not use, in every term that can match their nodes.

    These are the pools that a wildcard opens, those that a Pod without a certain request tolerates
    for its own pools, and of a GPU Pod whose nodes need no labels, the pools with the same taint
    that its namespace or its size excludes.
    """
    if pools := opened_without_labels(context):
        return _additions(pod, pools, context)
    # The node affinity for the pool of a certain request excludes the other pools.
    if any(request.certain for request in context.device_requests):
        return ()
    tolerations = [each for each in pod.spec.tolerations or () if is_wildcard(each)]
    tolerations += [
        toleration(taint) for pool in context.requested_pools for taint in pool.tolerated
    ]
    if not tolerations or is_daemon_set_pod(pod, context):
        return ()
    pools = [pool for pool in pools_by_toleration(pod, tolerations, context) if pool.selector]
    return _additions(pod, pools, context) if pools else ()


def _additions(pod: Pod, pools: Sequence[Pool], context: Context) -> Iterator[Addition]:
    named = {each.alternative.path: each.pools for each in named_pools(pod, pools, context)}
    terms = required_terms(pod.spec)
    if terms is None:
        unnamed = [pool for pool in pools if pool not in named.get("", ())]
        if ways := _exclusions(unnamed, pod.selection()[0], context):
            affinity = affinity_of([NodeSelectorTerm(way) for way in ways])
            yield Addition(pod.spec, ("spec", "affinity"), affinity)
        return
    copies: list[NodeSelectorTerm] = []
    for index, (each, alternative) in enumerate(zip(terms, pod.alternatives(), strict=True)):
        if alternative.parses:
            of_term = named.get(alternative.path, ())
            matched = [pool for pool in pools if pool not in of_term and pool.can_meet(alternative)]
            if ways := _exclusions(matched, alternative, context):
                first, *others = ways
                yield Addition(each, (*TERMS, index, "matchExpressions"), first)
                own = each.match_expressions or []
                copies += [NodeSelectorTerm([*own, *way], each.match_fields) for way in others]
    if copies:
        yield Addition(pod.spec, ("spec", "affinity"), affinity_of(copies))


def _exclusions(
    pools: Sequence[Pool], alternative: Alternative, context: Context
) -> list[list[Requirement]]:
    """Return ORed expressions that no node of the pools meets. Pools with one label share one.

    Each pool is excluded by the first of its labels that leaves the alternative nodes to accept. If
    nodes of no pool have that label as well, or may have it, by each of its labels.
    """
    chosen: dict[Pool, str] = {}
    for pool in pools:
        for key in pool.selector:
            trial = chosen | {pool: key}
            if _leaves_nodes(alternative, _without(trial), context):
                chosen = trial
                break
    if not chosen:
        return []
    # The chosen labels come first: they leave nodes.
    keys = [sorted(pool.selector, key=own.__ne__) for pool, own in chosen.items()]
    choices = islice(product(*keys), _MOST_WAYS)
    ways = [_without(dict(zip(chosen, each, strict=True))) for each in choices]
    if (nodes := context.facts.nodes) is not None:
        outside = nodes.accepted_by(alternative) & ~nodes_of_pools(context.policy, nodes).all
        if not outside & ~nodes.accepted_by(Alternative({}, tuple(ways[0]), (), "")):
            return ways[:1]
    return [way for way in ways if _leaves_nodes(alternative, way, context)]


def _without(labels: Mapping[Pool, str]) -> list[Requirement]:
    """Return expressions that no node with the labels of the pools meets, by their keys."""
    unwanted: dict[str, list[str]] = {}
    for pool, key in labels.items():
        values = pool.selector[key]
        if not values or unwanted.get(key) == []:
            unwanted[key] = []
        else:
            unwanted.setdefault(key, []).extend(values)
    return [
        Requirement(key, "NotIn", [*dict.fromkeys(values)])
        if values
        else Requirement(key, "DoesNotExist")
        for key, values in unwanted.items()
    ]


def _leaves_nodes(alternative: Alternative, added: Sequence[Requirement], context: Context) -> bool:
    """Return whether nodes of no pool still meet the alternative: some node, and a known one.

    So do nodes of each pool that the Pod requests.
    """
    excluding = Alternative({}, tuple(added), (), "")
    if not can_meet(alternative, added) or not all(
        pool.can_meet(excluding) for request in context.device_requests for pool in request.pools
    ):
        return False
    nodes = context.facts.nodes
    if nodes is None:
        return True
    outside = nodes.accepted_by(alternative) & ~nodes_of_pools(context.policy, nodes).all
    return not outside or bool(outside & nodes.accepted_by(excluding))
