"""Taints, tolerations and node selection, as kube-scheduler judges them.

Sources: ``k8s.io/api/core/v1/toleration.go``,
``k8s.io/component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go`` and
``k8s.io/apimachinery/pkg/labels/selector.go``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

import msgspec

from policies.kubernetes.core_v1 import NodeSelectorTerm, PodSpec, Requirement, Toleration
from policies.kubernetes.field_types import InAPIServer, LabelValue, Part, QualifiedName, one_of
from policies.kubernetes.quantity import is_label_value, is_qualified_name

TaintEffect = Annotated[str, one_of("NoSchedule", "PreferNoSchedule", "NoExecute")]


@dataclass(frozen=True, slots=True, order=True)
class Taint(Part):
    """A taint of nodes."""

    key: InAPIServer[QualifiedName]
    """The taint's key."""
    effect: InAPIServer[TaintEffect] = "NoSchedule"
    """NoSchedule, PreferNoSchedule or NoExecute."""
    value: InAPIServer[LabelValue | None] = None
    """The taint's value. Without it, every value matches."""

    def __str__(self) -> str:
        value = "" if self.value is None else f"={self.value}"
        return f"{self.key}{value}:{self.effect}"

    def includes(self, other: Taint) -> bool:
        """Return whether the other taint is this one; a value of ``None`` includes all values."""
        return (self.key, self.effect) == (other.key, other.effect) and (
            self.value in (None, other.value)
        )


FENCING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
"""The taint effects that keep a Pod off a node; PreferNoSchedule only discourages."""

NODE_NAME_FIELD = "metadata.name"

# Values of labels and of tolerations have up to 63 characters.
_INTEGER = re.compile(r"[+-]?[0-9]{1,63}", re.ASCII)
_INT64 = range(-(2**63), 2**63)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether the toleration covers the taint, for every value if the taint leaves it open.

    The numeric operators ``Lt`` and ``Gt`` (alpha, off by default in 1.36) cover nothing here:
    the answer must be right on every cluster.
    """
    if not _key_and_effect_match(toleration, taint):
        return False
    operator = toleration.operator or "Equal"
    if operator == "Exists":
        return True
    return operator == "Equal" and (toleration.value or "") == taint.value


def may_tolerate(toleration: Toleration, taint: Taint) -> bool:
    """Return whether the toleration covers the taint for some value that the taint may have."""
    if not _key_and_effect_match(toleration, taint):
        return False
    operator = toleration.operator or "Equal"
    if operator == "Equal":
        return taint.value is None or (toleration.value or "") == taint.value
    if operator in ("Lt", "Gt"):
        bound = parse_int64(toleration.value or "")
        if bound is None:
            return False
        if taint.value is None:
            # Values are like labels' and have no sign (core validation.go, validateNodeTaints).
            return bound > 0 if operator == "Lt" else bound < _INT64[-1]
        value = parse_int64(taint.value)
        return value is not None and (value < bound if operator == "Lt" else value > bound)
    return operator == "Exists"


def reached_taint(toleration: Toleration, taints: Iterable[Taint]) -> Taint | None:
    """Return the first of the taints that keep Pods away and that the toleration may cover."""
    for taint in taints:
        if taint.effect in FENCING_EFFECTS and may_tolerate(toleration, taint):
            return taint
    return None


def is_wildcard(toleration: Toleration) -> bool:
    """Return whether the toleration names no key: it covers every taint (of its effect)."""
    return not toleration.key


def _key_and_effect_match(toleration: Toleration, taint: Taint) -> bool:
    effect, key = toleration.effect, toleration.key
    return (not effect or effect == taint.effect) and (not key or key == taint.key)


def parse_int64(text: str) -> int | None:
    """Parse as Go's ``strconv.ParseInt(text, 10, 64)`` does; ``None`` where that fails."""
    if not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if value in _INT64 else None


class Alternative(msgspec.Struct, gc=False):
    """One of the ORed alternatives of a Pod's node selection.

    A node meets it that carries every label of ``labels`` and meets every requirement.
    ``path`` leads to the node selector term, and is empty where the Pod has none. No node meets a
    term that is empty, or that has a requirement which does not parse: ``parses`` is false.
    """

    labels: Mapping[str, str]
    expressions: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]
    path: str
    parses: bool = True
    _by_key: dict[str, list[Requirement]] | None = None
    _possible_values: dict[tuple[str, bool], bool] = {}
    _has_possible_name: bool | None = None

    @property
    def by_key(self) -> Mapping[str, list[Requirement]]:
        """The expressions by the key of their label."""
        if self._by_key is None:
            self._by_key = {}
            for expression in self.expressions:
                self._by_key.setdefault(expression.key or "", []).append(expression)
        return self._by_key

    def has_possible_value(self, key: str, *, present: bool) -> bool:
        """Return whether some value of the label meets the expressions about it.

        Unless the label must be ``present``, its absence counts as well.
        """
        possible = self._possible_values.get((key, present))
        if possible is None:
            requirements = self.by_key[key]
            if present:
                requirements = [*requirements, Requirement(key, "Exists")]
            possible = self._possible_values[key, present] = _can_be_met(requirements)
        return possible

    def has_possible_name(self) -> bool:
        """Return whether some name of a node meets the fields."""
        if self._has_possible_name is None:
            names = [field for field in self.fields if field.key == NODE_NAME_FIELD]
            wanted = [_field_value(field) for field in names if field.operator == "In"]
            name = wanted[0] if wanted else "-".join(("other", *map(_field_value, names)))
            self._has_possible_name = name != "" and _fields_met(self.fields, name)
        return self._has_possible_name


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
REQUIRED_TERMS = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"


def required_terms(spec: PodSpec) -> list[NodeSelectorTerm] | None:
    """Return the required node selector terms, ``None`` where the Pod sets no requirement.

    An empty list is a requirement that no node meets.
    """
    node_affinity = spec.affinity.node_affinity if spec.affinity else None
    if node_affinity is None or node_affinity.required is None:
        return None
    return node_affinity.required.node_selector_terms or []


def alternatives(spec: PodSpec) -> list[Alternative]:
    """Return an alternative for each term of the required node affinity; one if there is none."""
    labels = {key: value or "" for key, value in (spec.node_selector or {}).items()}
    terms = required_terms(spec)
    if terms is None:
        return [Alternative(labels, (), (), "")]
    return term_alternatives(terms, labels)


def term_alternatives(
    terms: Iterable[NodeSelectorTerm], labels: Mapping[str, str] = MappingProxyType({})
) -> list[Alternative]:
    """Return the terms of a node selector, each in addition to labels."""
    found: list[Alternative] = []
    for index, term in enumerate(terms):
        expressions = tuple(term.match_expressions or ())
        fields = tuple(term.match_fields or ())
        can_match = all(map(parses, expressions)) and all(map(_field_parses, fields))
        can_match = can_match and bool(expressions or fields)
        path = f"{REQUIRED_TERMS}[{index}]"
        found.append(Alternative(labels, expressions, fields, path, can_match))
    return found


def matches_node(spec: PodSpec, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether the Pod's nodeSelector and required node affinity accept the node."""
    return any(each.parses and accepts(each, name, labels) for each in alternatives(spec))


def accepts(alternative: Alternative, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether the node of that name and those labels meets the alternative."""
    # Loops: all() with a generator takes thrice the time, and this runs for many nodes a Pod.
    for key, value in alternative.labels.items():
        if labels.get(key) != value:
            return False
    for expression in alternative.expressions:
        if not _expression_met(expression, labels.get(expression.key or "")):
            return False
    return _fields_met(alternative.fields, name)


def parses(expression: Requirement) -> bool:
    """As ``labels.NewRequirement``: the operator's number of values, and names that are names."""
    operator, values = expression.operator, expression.values or []
    if not is_qualified_name(expression.key or "") or not all(map(is_label_value, values)):
        return False
    if operator in ("In", "NotIn"):
        return bool(values)
    if operator in ("Exists", "DoesNotExist"):
        return not values
    if operator in ("Gt", "Lt"):
        return len(values) == 1 and parse_int64(values[0]) is not None
    return False


def _field_parses(field: Requirement) -> bool:
    return field.operator in ("In", "NotIn") and len(field.values or ()) == 1


def are_met(expressions: Iterable[Requirement], value: str | None) -> bool:
    """Return whether a label's value meets all expressions about it."""
    for expression in expressions:  # noqa: SIM110 - any() costs twice the time
        if not _expression_met(expression, value):
            return False
    return True


def _expression_met(expression: Requirement, value: str | None) -> bool:
    """As ``Requirement.Matches``; ``None`` is a label that the node does not carry.

    The expression must parse, except for a label that is not there.
    """
    operator, values = expression.operator, expression.values or []
    if value is None:
        return operator in ("NotIn", "DoesNotExist")
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator in ("Exists", "DoesNotExist"):
        return operator == "Exists"
    number = parse_int64(value)
    if number is None:
        return False
    return number > int(values[0]) if operator == "Gt" else number < int(values[0])


def _can_be_met(requirements: Iterable[Requirement]) -> bool:
    """Return whether some value of a label, or its absence, meets all requirements on it.

    In time that grows with their number and that of their values, and not with the product.
    """
    by_operator: dict[str, list[list[str]]] = {}
    for requirement in requirements:
        by_operator.setdefault(requirement.operator or "", []).append(requirement.values or [])
    if "DoesNotExist" in by_operator:
        return by_operator.keys() <= {"DoesNotExist", "NotIn"}
    above = max((int(bound) for (bound,) in by_operator.get("Gt", ())), default=-1)
    below = min((int(bound) for (bound,) in by_operator.get("Lt", ())), default=_INT64.stop)
    is_number = "Gt" in by_operator or "Lt" in by_operator
    values: Iterable[str]
    if "In" in by_operator:
        values = frozenset.intersection(*map(frozenset, by_operator["In"]))
        if is_number:
            numbers = {value: parse_int64(value) for value in values}
            values = [v for v, n in numbers.items() if n is not None and above < n < below]
    elif is_number:
        values = _spellings(above, below)
    else:
        # There are more values than requirements can name.
        return True
    unwanted = {value for values in by_operator.get("NotIn", ()) for value in values}
    return any(value not in unwanted for value in values)


def _spellings(above: int, below: int) -> Iterator[str]:
    """Yield each label value that is an integer between the bounds.

    Values have no sign, up to 63 digits, and perhaps leading zeros: "06" is 6 and is not "6".
    """
    for number in range(above + 1, below):
        for width in range(len(str(number)), 64):
            yield str(number).zfill(width)


def _fields_met(fields: Iterable[Requirement], name: str) -> bool:
    for field in fields:
        actual = name if field.key == NODE_NAME_FIELD else ""
        if (_field_value(field) == actual) != (field.operator == "In"):
            return False
    return True


def _field_value(field: Requirement) -> str:
    """Return the value of a requirement on a field, which has one."""
    return (field.values or [""])[0]
