"""kube-scheduler's predicates for placement, in a few lines: the judge of the proofs.

``test_the_judge_agrees_with_the_scheduler`` compares it with the scheduler's own code on every
requirement and toleration of the proofs. It shares no code with gpufence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from policies.kubernetes.core_v1 import NodeSelectorTerm, PodSpec, Requirement, Toleration

Values = tuple[str, ...]
_LABEL_VALUE = "(?=.{0,63}$)([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?"


class NodeTaint(NamedTuple):
    """A taint as a node carries it."""

    key: str
    value: str
    effect: str


def integer(text: str) -> int | None:
    """Return the number, as Go's ``strconv.ParseInt(text, 10, 64)``."""
    number = int(text) if re.fullmatch("[+-]?[0-9]+", text, re.ASCII) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


@cache
def parses(operator: str | None, values: Values) -> bool:
    """Return whether ``labels.NewRequirement`` accepts the operator with these values."""
    if not all(re.fullmatch(_LABEL_VALUE, value, re.ASCII) for value in values):
        return False
    match operator:
        case "In" | "NotIn":
            return len(values) > 0
        case "Exists" | "DoesNotExist":
            return len(values) == 0
        case "Gt" | "Lt":
            return len(values) == 1 and integer(values[0]) is not None
    return False


@cache
def meets(operator: str | None, values: Values, value: str | None) -> bool:
    """Return whether a label's value meets a requirement; ``None`` is an absent label."""
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    number, bound = integer(value or ""), integer(values[0])
    if number is None or bound is None:
        return False
    return number > bound if operator == "Gt" else number < bound


def tolerates(toleration: Toleration, taint: NodeTaint, *, numeric: bool) -> bool:
    """Return whether the toleration covers the taint; ``numeric`` enables ``Gt`` and ``Lt``."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator or "Equal":
        case "Equal":
            return (toleration.value or "") == taint.value
        case "Exists":
            return True
        case "Gt" | "Lt" as operator:
            if not numeric or integer(toleration.value or "") is None:
                return False
            return meets(operator, (toleration.value or "",), taint.value)
    return False


def repels(
    taints: Iterable[NodeTaint], tolerations: Sequence[Toleration], *, numeric: bool
) -> bool:
    """Return whether one of the taints keeps the Pod away."""
    return any(
        taint.effect in ("NoSchedule", "NoExecute")
        and not any(tolerates(each, taint, numeric=numeric) for each in tolerations)
        for taint in taints
    )


class Nodes:
    """Nodes by their name and labels. A set of them is an integer: bit n stands for node n."""

    def __init__(self, nodes: Iterable[tuple[str, Mapping[str, str]]]) -> None:
        self.nodes = list(nodes)
        self.all = (1 << len(self.nodes)) - 1
        self._met: dict[tuple[str | None, str | None, Values], int] = {}

    def selected_by(self, spec: PodSpec) -> int:
        """Return the nodes that meet ``nodeSelector`` and the required node affinity."""
        found = self.all
        for key, value in (spec.node_selector or {}).items():
            found &= self.with_label(key, "In", (value or "",))
        node_affinity = spec.affinity.node_affinity if spec.affinity else None
        if node_affinity is None or node_affinity.required is None:
            return found
        accepted = 0
        for term in node_affinity.required.node_selector_terms or ():
            accepted |= self._meeting(term)
        return found & accepted

    def with_label(self, key: str | None, operator: str | None, values: Values) -> int:
        """Return the nodes whose label meets the requirement; without a key, whose name does."""
        found = self._met.get((key, operator, values))
        if found is None:
            found = sum(
                1 << number
                for number, (name, labels) in enumerate(self.nodes)
                if meets(operator, values, name if key is None else labels.get(key))
            )
            self._met[key, operator, values] = found
        return found

    def _meeting(self, term: NodeSelectorTerm) -> int:
        expressions, fields = term.match_expressions or (), term.match_fields or ()
        if not expressions and not fields:
            return 0
        found = self.all
        for each in expressions:
            values = tuple(each.values or ())
            if not parses(each.operator, values):
                return 0
            found &= self.with_label(each.key or "", each.operator, values)
        for field in fields:
            found &= self._named(field)
        return found

    def _named(self, field: Requirement) -> int:
        if field.operator not in ("In", "NotIn") or len(field.values or ()) != 1:
            return 0
        return self.with_label(None, field.operator, tuple(field.values or ()))
