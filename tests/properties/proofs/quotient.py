"""The finite quotient of Pods, nodes and pools on which the statements are proved.

There are infinitely many node selections. They fall into finitely many classes that no function
under proof can tell apart, and this module has a member of each. Why the classes are complete:

1. *Terms.* A node meets a selection if it meets one of the terms. The functions take one term at a
   time (``Alternative``), and the mutation completes each term by itself. One term is enough, and
   pairs of terms show that the positions are right.
2. *Keys.* A term and the ``nodeSelector`` are a conjunction of requirements, each about one label.
   The functions read the requirements on one key at a time, and combine the answers with
   ``and``. What a pool does not name is one more such key. So two keys of pools, and a third key,
   show every combination of two answers.
3. *Lists of requirements.* Of the requirements on a key, only these matter: the nodes that meet all
   of them. ``NotIn`` lists add up to one list, ``Exists`` and ``DoesNotExist`` count once, and of
   ``Gt`` and ``Lt`` the strictest counts. ``requires`` looks for a single ``In`` within the pool's
   values, so two ``In`` lists are not like their intersection; more than two are like two of them.
4. *Values.* The functions compare values for equality, and integers with bounds. Values in the same
   lists, and with the same results of comparison, are alike: one value stands for all. Two values
   of pools, one that only Pods name, and one that no list names are enough, because a list contains
   each of them or does not. Every number below, between and above the bounds has a value.
5. *Numbers.* Adjacent bounds, the limits of 64 bits and the spellings of a number ("6" and "06")
   are the exception, and have an enumeration of their own (``number_requirements``).

``classes`` computes the classes of one key from the answers of the functions, so that the products
over keys stay small.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from policies.kubernetes.core_v1 import Requirement, Toleration
from policies.kubernetes.scheduling import Alternative
from policies.kubernetes.selector import (
    Selector,
    can_match,
    confines,
    requires,
    requires_labels,
    surely_accepts,
)
from proofs.judge import meets

POOL_VALUES = ("5", "7")
NAMED = (*POOL_VALUES, "x")
NODE_VALUES = (None, *NAMED, "other", "3", "4", "05", "6", "07", "8", "9")
"""The values of a label of a node; ``None`` stands for its absence."""

LONGEST = "z" * 63
SPELLINGS_OF_6 = tuple("6".zfill(width) for width in range(1, 64))


class Constraint(NamedTuple):
    """What a Pod requires of one label: in ``nodeSelector``, and in a term."""

    label: str | None
    expressions: tuple[Requirement, ...]

    def alternative(self, key: str) -> Alternative:
        labels = {} if self.label is None else {key: self.label}
        return Alternative(labels, self.expressions, (), "")

    def accepts(self, value: str | None) -> bool:
        """Return whether a node with the value, or without the label, meets the constraint."""
        return self.label in (None, value) and all(
            meets(each.operator, tuple(each.values or ()), value) for each in self.expressions
        )


def constraints(key: str, *, small: bool) -> Iterator[Constraint]:
    """Yield what a Pod can require of one label, without odd numbers."""
    some = list(subsets(NAMED))
    ins = [(), *([each] for each in some), *itertools.combinations(some, 2)]
    bounds: Sequence[str | None] = (None, "4", "5", "6", "7", "8")
    if small:
        ins, bounds = [(), (("5",),), (("5", "x"),), (("5", "7"), ("7", "x"))], (None, "5", "6")
    for label, wanted, unwanted, exists, absent, above, below in itertools.product(
        (None, *NAMED), ins, ((), *some), (False, True), (False, True), bounds, bounds
    ):
        expressions = [Requirement(key, "In", list(values)) for values in wanted]
        if unwanted:
            expressions.append(Requirement(key, "NotIn", list(unwanted)))
        if exists:
            expressions.append(Requirement(key, "Exists"))
        if absent:
            expressions.append(Requirement(key, "DoesNotExist"))
        if above:
            expressions.append(Requirement(key, "Gt", [above]))
        if below:
            expressions.append(Requirement(key, "Lt", [below]))
        yield Constraint(label, tuple(expressions))


def number_requirements(key: str) -> Iterator[tuple[Requirement, ...]]:
    """Yield requirements on numbers next to each other, to the limits, and with every spelling."""
    top = 2**63 - 1
    bounds = [str(bound) for bound in (0, 1, 4, 5, 6, 7, 8, top - 2, top - 1, top)]
    spellings = list(SPELLINGS_OF_6)
    unwanted: list[list[str]] = [
        [],
        ["6"],
        ["6", LONGEST],
        ["6", "06", "other"],
        spellings,
        spellings[1:],
        spellings[:-1],
        [*spellings[:30], *spellings[31:]],
        [str(top), str(top - 1)],
        ["0"],
    ]
    wanted: list[list[str]] = [[], ["6"], ["06", "7", "x"], [str(top)], ["0", "x"]]
    for above, below, no, yes in itertools.product(
        [None, *bounds, "0005"], [None, *bounds, "007"], unwanted, wanted
    ):
        found = []
        if above:
            found.append(Requirement(key, "Gt", [above]))
        if below:
            found.append(Requirement(key, "Lt", [below]))
        if no:
            found.append(Requirement(key, "NotIn", no))
        if yes:
            found.append(Requirement(key, "In", yes))
        yield tuple(found)


def values_of_numbers() -> tuple[str | None, ...]:
    """Return values that together meet each of ``number_requirements`` that a value can meet."""
    top = 2**63 - 1
    small = [str(number).zfill(width) for number in range(10) for width in range(1, 64)]
    large = [str(top - step).zfill(width) for step in range(4) for width in (19, 20, 63)]
    return (None, *small, *large, str(top + 1), "x", "other", "yet-another", LONGEST)


def selectors(key: str) -> list[Selector]:
    """Return what a pool can require of one label, and an empty selector."""
    some: list[Selector] = [{key: values} for values in ((), ("5",), ("7",), POOL_VALUES)]
    return [{}, *some]


def classes(key: str, every: Iterable[Constraint]) -> list[Constraint]:
    """Return one constraint for each set of answers that the judge and the functions give.

    Values that no pool names are alike for a pool: one that the constraint accepts is enough.
    """
    found: dict[object, Constraint] = {}
    pools = selectors(key)
    several = [list(each) for each in itertools.combinations([*pools[1:], {key: ("x",)}], 2)]
    for constraint in every:
        alternative = constraint.alternative(key)
        accepted = {value for value in NODE_VALUES if constraint.accepts(value)}
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


def tolerations() -> Iterator[Toleration]:
    """Yield every toleration that the taints of the proofs tell apart."""
    numbers = ("0", "1", "5", "6", "-1", "9223372036854775806", "9223372036854775807")
    for key, operator, value, effect in itertools.product(
        (None, "", "gpu", "other"),
        (None, "", "Equal", "Exists", "Lt", "Gt", "Like"),
        (None, "", "yes", "no", *numbers),
        (None, "", "NoSchedule", "NoExecute", "PreferNoSchedule"),
    ):
        yield Toleration(key, operator, value, effect)


TAINT_VALUES = ("", "yes", "no", "0", "4", "5", "6", "9223372036854775807")
"""The values of a taint on a node. They are like labels': without a sign."""


def subsets(values: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield each non-empty subset."""
    for size in range(1, len(values) + 1):
        yield from itertools.combinations(values, size)
