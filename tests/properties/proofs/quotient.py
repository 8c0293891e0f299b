"""The finite quotient of Pods, nodes and pools on which the statements are proved.

``policies.classes`` has the classes of node selections and tolerations, and the argument for them.
Two keys of pools, and a third key, show every combination of two answers, and pairs of terms show
that the positions are right. Of ``Gt`` and ``Lt`` the strictest counts, and every number below,
between and above the bounds has a value. Adjacent bounds, the limits of 64 bits and the spellings
of a number ("6" and "06") are the exception, and have an enumeration of their own
(``number_requirements``).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from policies import classes
from policies.classes import NAMED, Constraint, lists
from policies.kubernetes.core_v1 import Requirement, Toleration

NODE_VALUES = (None, *NAMED, "other", "3", "4", "05", "6", "07", "8", "9")
"""The values of a label of a node; ``None`` stands for its absence."""

LONGEST = "z" * 63
SPELLINGS_OF_6 = tuple("6".zfill(width) for width in range(1, 64))


def constraints(key: str, *, small: bool) -> Iterator[Constraint]:
    """Yield what a Pod can require of one label, without odd numbers."""
    bounds: list[str | None] = [None, "5", "6"] if small else [None, "4", "5", "6", "7", "8"]
    few = [(), (("5",),), (("5", "x"),), (("5", "7"), ("7", "x"))]
    wanted = few if small else lists()
    yield from classes.constraints(key, wanted, list(itertools.product(bounds, bounds)))


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


def tolerations() -> Iterator[Toleration]:
    """Yield every toleration that the taints of the proofs tell apart."""
    numbers = ("0", "1", "5", "6", "-1", "9223372036854775806", "9223372036854775807")
    values = (None, "", "yes", "no", *numbers)
    yield from classes.tolerations(values, (None, "", "gpu", "other"))


TAINT_VALUES = ("", "yes", "no", "0", "4", "5", "6", "9223372036854775807")
"""The values of a taint on a node. They are like labels': without a sign."""
