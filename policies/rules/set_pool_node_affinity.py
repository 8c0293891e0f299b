"""Required node affinity for the nodes of the pool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from policies.candidates import why_closed
from policies.context import Context
from policies.kubernetes.core_v1 import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
)
from policies.kubernetes.editor import Addition
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import REQUIRED, Alternative, required_terms
from policies.kubernetes.selector import (
    can_meet,
    narrowed,
    negated,
    requirement,
    requires,
)
from policies.policy import Pool
from policies.reach import Closed, chooses_closed_nodes, is_within, needs_no_labels
from policies.rules.check_pool_requirements import meets

ID = "pool-node-affinity"
SUMMARY = "the required node affinity for the nodes of the pool"
MOST_NEW_TERMS = 100
"""The scheduler compares every term with every node."""

_MOST_WAYS = 16
"""The most terms that one becomes to keep the Pod off pools that are closed to it. With more, nodes
are left out that are of none of these pools."""

TERMS = ("spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")

Expressions = list[Requirement]
Label = tuple[str, tuple[str, ...]]
"""The key of a label and its possible values; no values stand for any."""


def changes(pod: Pod, context: Context) -> Iterator[Addition]:
    """Require the labels of the pools that the Pod cannot do without, in every term.

    Nodes of a pool that is closed to the Pod are left out. If that leaves no node that the Pod
    selects, they stay, and a check denies the Pod.
    """
    closed = closed_pools(pod, context)
    if closed and chooses_closed_nodes(pod, closed, context):
        closed = {}
    missing = _missing(pod, context, closed)
    if closed and missing and not _leaves_nodes(pod, missing, closed):
        closed = {}
        missing = _missing(pod, context, closed)
    if not missing or not any(map(any, missing)) or not _leaves_nodes(pod, missing, closed):
        return
    terms = required_terms(pod.spec)
    if terms is None:
        if added := [NodeSelectorTerm(way) for way in missing[0] if way]:
            yield Addition(pod.spec, ("spec", "affinity"), affinity_of(added))
        return
    copies: list[NodeSelectorTerm] = []
    for index, (term, (first, *others)) in enumerate(zip(terms, missing, strict=True)):
        if first:
            yield Addition(term, (*TERMS, index, "matchExpressions"), first)
        own = term.match_expressions or []
        copies += [NodeSelectorTerm([*own, *other], term.match_fields) for other in others]
    if copies:
        yield Addition(pod.spec, ("spec", "affinity"), affinity_of(copies))


def closed_pools(pod: Pod, context: Context) -> Closed:
    """Return by candidate pool the pools that the Pod may not use, and that share nodes with it.

    A pool can be closed to a namespace, to so many of its devices, or by its requirements.
    """
    policy, requested = context.policy, context.requested_pools
    if not (requested and policy.restricted_pools):
        return {}
    neighbors = {pool: policy.neighbors(pool) for pool in requested}
    found = {
        other
        for other in dict.fromkeys(chain(*neighbors.values()))
        if other not in requested
        and (why_closed(pod, other, context) or not meets(pod, other, context))
    }
    own = (
        (pool, [other for other in others if other in found]) for pool, others in neighbors.items()
    )
    return {pool: others for pool, others in own if others}


def _leaves_nodes(pod: Pod, missing: Sequence[Sequence[Expressions]], closed: Closed) -> bool:
    """Return whether some node can meet a completed term."""
    if not closed and required_terms(pod.spec) is None and not pod.spec.node_selector:
        return True
    return any(
        alternative.parses and can_meet(alternative, way)
        for alternative, completions in zip(pod.alternatives(), missing, strict=True)
        for way in completions
    )


def affinity_of(terms: list[NodeSelectorTerm]) -> Affinity:
    """Return the affinity for the nodes that meet one of the terms."""
    return Affinity(NodeAffinity(NodeSelector(terms)))


def exceeds_limit(pod: Pod, context: Context) -> bool:
    """Return whether the rule adds nothing because it would have to add too many terms."""
    return _missing(pod, context, closed_pools(pod, context)) is None


def _missing(pod: Pod, context: Context, closed: Closed) -> list[list[Expressions]] | None:
    """Return for each term the ORed completions; ``None`` if they are too many.

    A Pod without terms has one for each term to add.
    """
    pools, several = _required(context)
    missing: list[list[Expressions]] = []
    new = 0
    for alternative in pod.alternatives():
        # No node meets a term that does not parse.
        parses = alternative.parses
        missing.append(_completions(alternative, pools, several, closed) if parses else [[]])
        new += len(missing[-1]) - bool(alternative.path)
        if new > MOST_NEW_TERMS:
            return None
    return missing


def _required(context: Context) -> tuple[list[Pool], Sequence[Pool]]:
    """Return the pools that a node must belong to, and the pools where one is enough."""
    pools: dict[Pool, None] = {}
    several: Sequence[Pool] = ()
    for request in context.device_requests:
        if not request.certain or needs_no_labels(request, context):
            continue
        if len(request.pools) == 1:
            pools[request.pools[0]] = None
        else:
            several = request.pools
    return [*pools], several


def _completions(
    alternative: Alternative, pools: Sequence[Pool], several: Sequence[Pool], closed: Closed
) -> list[Expressions]:
    """Return the expressions that an alternative lacks: one list, or several that are ORed."""
    labels = {label: None for pool in pools for label in pool.selector.items()}
    if not several:
        return _ways(alternative, labels, pools, closed) or [
            _nothing(alternative, labels, pools, closed)
        ]
    shared = [pool.selector.items() for pool in several]
    for item in shared[0]:
        if all(item in labels_of_pool for labels_of_pool in shared):
            labels[item] = None
    is_plain = not (closed or any(pool.without for pool in (*pools, *several)))
    if is_within(alternative, several) and (
        is_plain or _is_done(alternative, [*pools, *several], closed)
    ):
        return [_lacking(alternative, labels)]
    rest = [dict(pool.selector.items() - {*labels}) for pool in several]
    keys = {key for way in rest for key in way}
    if is_plain and len(keys) == 1 and all(rest):
        (key,) = keys
        choices = [way[key] for way in rest]
        together = dict.fromkeys(chain(*choices)) if all(choices) else ()
        return [[*_lacking(alternative, labels), requirement(key, [*together])]]
    found: list[Expressions] = []
    for pool in (each for each in several if each.can_meet(alternative)):
        every = dict.fromkeys((*labels, *pool.selector.items()))
        found += _ways(alternative, every, [*pools, pool], closed)
    if not found:
        every = dict.fromkeys((*labels, *several[0].selector.items()))
        found.append(_nothing(alternative, every, [*pools, *several], closed))
    return found


def _is_done(alternative: Alternative, pools: Sequence[Pool], closed: Closed) -> bool:
    """Return whether the alternative leaves out all nodes that are closed to the Pod."""
    return not any(
        can_meet(alternative, [*pool.requirements, *other.requirements])
        for pool in pools
        for other in closed.get(pool, ())
    )


def _ways(
    alternative: Alternative, labels: Iterable[Label], pools: Sequence[Pool], closed: Closed
) -> list[Expressions]:
    """Return what the alternative lacks to accept nodes of all the pools, and of no closed one.

    A node is of no closed pool if it lacks one of its labels: a way for each. None is left if all
    nodes are closed to the Pod.
    """
    missing = _lacking(alternative, labels)
    missing += [
        each for pool in pools for each in pool.without if can_meet(alternative, [negated(each)])
    ]
    if not closed:
        return [missing]
    others = dict.fromkeys(chain(*(closed.get(pool, ()) for pool in pools)))
    base = narrowed(alternative, [each for pool in pools for each in pool.requirements])
    ways: list[Expressions] = [[]]
    for other in others:
        longer: list[Expressions] = []
        for way in ways:
            if not can_meet(base, [*way, *other.requirements]):
                longer.append(way)
                continue
            trials = [[*way, negated(each)] for each in other.requirements]
            longer += [trial for trial in trials if can_meet(base, trial)]
        ways = _widest(longer)[:_MOST_WAYS]
    return [[*missing, *_merged(way)] for way in ways]


def _widest(ways: Sequence[Expressions]) -> list[Expressions]:
    """Return the ways without those that another one includes."""
    kept: list[Expressions] = []
    for way in sorted(ways, key=len):
        if not any(all(each in way for each in other) for other in kept):
            kept.append(way)
    return kept


def _merged(way: Iterable[Requirement]) -> Expressions:
    """Return the expressions with one ``NotIn`` for each label."""
    merged: Expressions = []
    for each in way:
        same = (
            o for o in merged if (o.key, o.operator, each.operator) == (each.key, "NotIn", "NotIn")
        )
        if (known := next(same, None)) is None:
            merged.append(Requirement(each.key, each.operator, each.values and [*each.values]))
        else:
            known.values = [*dict.fromkeys((*(known.values or ()), *(each.values or ())))]
    return merged


def _nothing(
    alternative: Alternative, labels: Iterable[Label], pools: Sequence[Pool], closed: Closed
) -> Expressions:
    """Return what completes an alternative all of whose nodes are closed: no node meets it then."""
    others = dict.fromkeys(chain(*(closed.get(pool, ()) for pool in pools)))
    return [*_lacking(alternative, labels), *(negated(each.requirements[0]) for each in others)]


def _lacking(alternative: Alternative, labels: Iterable[Label]) -> Expressions:
    return [requirement(*label) for label in labels if not requires(alternative, *label)]
