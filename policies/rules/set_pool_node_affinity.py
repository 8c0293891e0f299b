"""Required node affinity for the nodes of the pool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

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
from policies.kubernetes.selector import can_match, can_meet, confines, requirement, requires
from policies.policy import Pool
from policies.reach import needs_no_labels

ID = "pool-node-affinity"
SUMMARY = "the required node affinity for the nodes of the pool"
MOST_NEW_TERMS = 100
"""The scheduler compares every term with every node."""

TERMS = ("spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")

Expressions = list[Requirement]
Label = tuple[str, tuple[str, ...]]
"""The key of a label and its possible values; no values stand for any."""


def changes(pod: Pod, context: Context) -> Iterator[Addition]:
    """Require the labels of the pools that the Pod cannot do without, in every term."""
    missing = _missing(pod, context)
    if not missing or not any(map(any, missing)) or not _leaves_nodes(pod, missing):
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


def _leaves_nodes(pod: Pod, missing: Sequence[Sequence[Expressions]]) -> bool:
    """Return whether some node can meet a completed term."""
    if required_terms(pod.spec) is None and not pod.spec.node_selector:
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
    return _missing(pod, context) is None


def _missing(pod: Pod, context: Context) -> list[list[Expressions]] | None:
    """Return for each term the ORed completions; ``None`` if they are too many.

    A Pod without terms has one for each term to add.
    """
    labels, pools = _required(context)
    missing: list[list[Expressions]] = []
    new = 0
    for alternative in pod.alternatives():
        is_empty = not (alternative.parses or alternative.expressions or alternative.fields)
        missing.append([[]] if is_empty else _completions(alternative, labels, pools))
        new += len(missing[-1]) - bool(alternative.path)
        if new > MOST_NEW_TERMS:
            return None
    return missing


def _required(context: Context) -> tuple[Iterable[Label], Sequence[Pool]]:
    """Return the labels that the nodes must have, and the pools that they may belong to."""
    labels: dict[Label, None] = {}
    several: Sequence[Pool] = ()
    for request in context.device_requests:
        if needs_no_labels(request, context):
            continue
        if request.certain and len(request.pools) == 1:
            labels |= dict.fromkeys(request.pools[0].selector.items())
        elif request.certain:
            several = request.pools
    shared = [pool.selector.items() for pool in several]
    for item in shared[0] if shared else ():
        if all(item in labels_of_pool for labels_of_pool in shared):
            labels[item] = None
    return labels, several


def _completions(
    alternative: Alternative,
    labels: Iterable[Label],
    pools: Sequence[Pool],
) -> list[Expressions]:
    """Return the expressions that an alternative lacks: one list, or one for each pool."""
    missing = _lacking(alternative, labels)
    if not pools or confines(alternative, [pool.selector for pool in pools]):
        return [missing]
    rest = [dict(pool.selector.items() - {*labels}) for pool in pools]
    keys = {key for way in rest for key in way}
    if len(keys) == 1 and all(rest):
        (key,) = keys
        choices = [way[key] for way in rest]
        together = dict.fromkeys(chain(*choices)) if all(choices) else ()
        return [[*missing, requirement(key, [*together])]]
    # What does not parse matches no node, and neither does what matches no pool's.
    fitting = [
        pool for pool in pools if alternative.parses and can_match(alternative, pool.selector)
    ]
    return [
        _lacking(alternative, dict.fromkeys((*labels, *pool.selector.items())))
        for pool in fitting or pools[:1]
    ]


def _lacking(alternative: Alternative, labels: Iterable[Label]) -> Expressions:
    return [requirement(*label) for label in labels if not requires(alternative, *label)]
