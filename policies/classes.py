"""Classes of Pods that policies can tell apart, each with its smallest member.

There are infinitely many Pods. What a policy says of one depends on few answers: which requirements
its nodes meet, which taints it tolerates, how its requests compare with the limits of a pool,
and to which names of the policy its namespace, user and other fields are equal. A *trait* stands
for one such answer, and a class for a set of traits.

Why the traits about one label are complete:

1. *Terms.* A node meets a selection if it meets one of the terms. The functions take one term at a
   time (``Alternative``), and the mutation completes each term by itself. One term is enough.
2. *Keys.* A term and the ``nodeSelector`` are a conjunction of requirements, each about one label.
   The functions read the requirements on one key at a time, and combine the answers with ``and``.
3. *Lists of requirements.* Of the requirements on a key, only these matter: the nodes that meet all
   of them. ``NotIn`` lists add up to one list, and ``Exists`` and ``DoesNotExist`` count once.
   ``requires`` looks for a single ``In`` within the pool's values, so two ``In`` lists are not like
   their intersection; more than two are like two of them.
4. *Values.* The functions compare values for equality. A list contains a value or does not, so two
   values of pools, one that only Pods name, and one that no list names stand for all.

The proofs (``make prove``) check these statements, and enumerate numbers (``Gt``, ``Lt``) as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from policies.kubernetes.core_v1 import Requirement, Toleration
from policies.kubernetes.scheduling import (
    FENCING_EFFECTS,
    Alternative,
    Taint,
    are_met,
    may_tolerate,
    tolerates,
)
from policies.kubernetes.selector import (
    Selector,
    can_match,
    confines,
    requires,
    requires_labels,
    surely_accepts,
)

POOL_VALUES = ("5", "7")
NAMED = (*POOL_VALUES, "x")
"""Values that stand for those of pools, and for one that only Pods name."""

_UNNAMED = "other"


class Constraint(NamedTuple):
    """What a Pod requires of one label: in ``nodeSelector``, and in a term."""

    label: str | None
    expressions: tuple[Requirement, ...]

    def alternative(self, key: str) -> Alternative:
        labels = {} if self.label is None else {key: self.label}
        return Alternative(labels, self.expressions, (), "")

    def accepts(self, value: str | None) -> bool:
        """Return whether a node with the value, or without the label, meets the constraint."""
        return self.label in (None, value) and are_met(self.expressions, value)


def constraints(
    key: str,
    wanted: Iterable[Sequence[Sequence[str]]],
    bounds: Iterable[tuple[str | None, str | None]] = ((None, None),),
) -> Iterator[Constraint]:
    """Yield what a Pod can require of one label.

    ``wanted`` are the lists of ``In`` to combine, and ``bounds`` the pairs for ``Gt`` and ``Lt``.
    """
    for label, ins, unwanted, exists, absent, (above, below) in itertools.product(
        (None, *NAMED), wanted, ((), *subsets(NAMED)), (False, True), (False, True), bounds
    ):
        given: list[tuple[str, Sequence[str]]] = [("In", values) for values in ins]
        given += [("NotIn", unwanted)] if unwanted else []
        given += [("Exists", ())] if exists else []
        given += [("DoesNotExist", ())] if absent else []
        given += [("Gt", [above])] if above else []
        given += [("Lt", [below])] if below else []
        expressions = (Requirement(key, op, list(values) or None) for op, values in given)
        yield Constraint(label, tuple(expressions))


def lists() -> list[Sequence[Sequence[str]]]:
    """Return the lists of values of up to two ``In``."""
    some = list(subsets(NAMED))
    return [(), *([each] for each in some), *itertools.combinations(some, 2)]


def selectors(key: str) -> list[Selector]:
    """Return what a pool can require of one label, and an empty selector."""
    return [{}, *({key: values} for values in ((), *subsets(POOL_VALUES)))]


def distinct(
    key: str, every: Iterable[Constraint], values: Sequence[str | None] = (None, *NAMED, _UNNAMED)
) -> list[Constraint]:
    """Return one constraint for each set of answers that the functions give, among node values.

    Values that no pool names are alike for a pool: one that the constraint accepts is enough.
    """
    found: dict[object, Constraint] = {}
    pools = selectors(key)
    several = [list(each) for each in itertools.combinations([*pools[1:], {key: ("x",)}], 2)]
    for constraint in every:
        alternative = constraint.alternative(key)
        accepted = {value for value in values if constraint.accepts(value)}
        answers = (
            *(value in accepted for value in (None, *POOL_VALUES)),
            bool(accepted - {None, *POOL_VALUES}),
            constraint.label,
            bool(constraint.expressions),
            *(can_match(alternative, pool) for pool in pools),
            *(surely_accepts(alternative, pool) for pool in pools),
            *(requires_labels(alternative, pool) for pool in pools),
            *(requires(alternative, key, pool[key]) for pool in pools[1:]),
            *(confines(alternative, [pool]) for pool in pools[1:]),
            *(confines(alternative, both) for both in several),
        )
        found.setdefault(answers, constraint)
    return list(found.values())


def subsets(values: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield each non-empty subset."""
    for size in range(1, len(values) + 1):
        yield from itertools.combinations(values, size)


def tolerations(
    values: Sequence[str | None], keys: Sequence[str | None] = (None, "gpu", "other")
) -> Iterator[Toleration]:
    """Yield the tolerations that a taint with the key ``gpu`` can tell apart."""
    yield from map(
        Toleration,
        *zip(
            *itertools.product(
                keys,
                (None, "", "Equal", "Exists", "Lt", "Gt", "Like"),
                values,
                (None, "", *sorted(FENCING_EFFECTS), "PreferNoSchedule"),
            ),
            strict=True,
        ),
    )


@cache
def selections() -> list[Constraint]:
    """Return a constraint of each class, without numbers, for the label ``key``."""
    return distinct("key", constraints("key", lists()))


@cache
def toleration_classes() -> list[Toleration]:
    """Return a valid toleration of each class, for a taint ``gpu`` with and without a value."""
    taints = [
        Taint("gpu", effect, value)
        for effect in (*sorted(FENCING_EFFECTS), "PreferNoSchedule")
        for value in (None, "yes")
    ]
    found: dict[object, Toleration] = {}
    for each in tolerations((None, "yes", "no"), (None, "gpu")):
        is_valid = each.operator == "Exists" if each.value is None else each.operator == "Equal"
        if each.effect != "" and is_valid and (each.key or each.operator == "Exists"):
            answers = tuple((tolerates(each, taint), may_tolerate(each, taint)) for taint in taints)
            found.setdefault((answers, each.key), each)
    return list(found.values())
