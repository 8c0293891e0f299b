"""The labels that identify nodes, and how a Pod's node selection relates to such nodes.

Source of the operators: ``k8s.io/apimachinery/pkg/labels/selector.go``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from policies.kubernetes.core_v1 import Requirement
from policies.kubernetes.scheduling import Alternative, are_met

Selector = Mapping[str, tuple[str, ...]]
"""Requirements on the labels of a node, which meets all of them.

By the key of the label: the values that the node may have (operator ``In``), or no values where
the node needs the label with any value (operator ``Exists``).
"""

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""The name of a namespace. API servers set it, and no client can change it (KEP-2161)."""

_OTHER = "*"
"""Stands for every value that no selector names. It is not a valid value of a label."""


_NEGATIONS = {"In": "NotIn", "NotIn": "In", "Exists": "DoesNotExist", "DoesNotExist": "Exists"}


def selector_of(labels: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the selector of the nodes that carry all of the labels."""
    return {key: (value,) for key, value in labels.items()}


def requirement(key: str, values: Sequence[str]) -> Requirement:
    """Return an entry of a selector as a requirement of a node selector term."""
    return Requirement(key, "In", list(values)) if values else Requirement(key, "Exists")


def negated(expression: Requirement) -> Requirement:
    """Return the requirement that exactly the other nodes meet. Not of ``Gt`` and ``Lt``."""
    return Requirement(
        expression.key, _NEGATIONS[expression.operator or ""], expression.values or None
    )


def narrowed(alternative: Alternative, added: Sequence[Requirement]) -> Alternative:
    """Return the alternative with further expressions."""
    if not added:
        return alternative
    return Alternative(
        alternative.labels,
        (*alternative.expressions, *added),
        alternative.fields,
        alternative.path,
        alternative.parses,
    )


def describe(selector: Selector) -> str:
    """Return the selector as kubectl writes it."""
    return ", ".join(_described(key, values) for key, values in selector.items())


def _described(key: str, values: Sequence[str]) -> str:
    if len(values) == 1:
        return f"{key}={values[0]}"
    return f"{key} in ({', '.join(values)})" if values else key


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Return whether a node with these labels meets the selector."""
    # A loop: all() with a generator takes three times as long.
    for key, values in selector.items():
        own = labels.get(key)
        if own is None or (values and own not in values):
            return False
    return True


def includes(wide: Mapping[str, Iterable[str]], narrow: Mapping[str, Iterable[str]]) -> bool:
    """Return whether every node that meets the narrow selector meets the wide one."""
    return all(
        key in narrow
        and (not values or (narrow[key] and frozenset(narrow[key]) <= frozenset(values)))
        for key, values in wide.items()
    )


def can_match(alternative: Alternative, selector: Selector) -> bool:
    """Return whether some node that meets the selector could meet the alternative.

    Other labels and the node's name are free: such a node may not exist today.
    """
    labels = alternative.labels
    # Of the two, the alternative's may be many.
    for key, values in selector.items():
        if values and key in labels and labels[key] not in values:
            return False
    if alternative.expressions:
        for key, requirements in alternative.by_key.items():
            values = (labels[key],) if key in labels else selector.get(key, ())
            if values:
                # A loop, because any() costs twice the time.
                for value in values:
                    if are_met(requirements, value):
                        break
                else:
                    return False
            elif not alternative.has_possible_value(key, present=key in selector):
                return False
    return not alternative.fields or alternative.has_possible_name()


def can_meet(alternative: Alternative, added: Iterable[Requirement]) -> bool:
    """Return whether some node could meet the alternative with further expressions."""
    return can_match(narrowed(alternative, tuple(added)), {})


def surely_accepts(
    alternative: Alternative, selector: Selector, without: Sequence[Requirement] = ()
) -> bool:
    """Return whether the alternative accepts every node that meets the selector.

    Regardless of the node's name and of its other labels. ``without`` are negative requirements
    that the nodes meet as well.
    """
    if without:
        open_to = [each for each in alternative.expressions if not _follows(each, without)]
        alternative = Alternative(alternative.labels, tuple(open_to), alternative.fields, "")
    if alternative.fields or not alternative.by_key.keys() <= selector.keys():
        return False
    return all(selector.get(key) == (value,) for key, value in alternative.labels.items()) and all(
        all(are_met(requirements, value) for value in selector[key])
        if selector[key]
        else all(each.operator == "Exists" for each in requirements)
        for key, requirements in alternative.by_key.items()
    )


def _follows(expression: Requirement, without: Iterable[Requirement]) -> bool:
    """Return whether nodes that meet one of the negative requirements meet the expression."""
    return any(
        each.key == expression.key
        and expression.operator in ("NotIn", each.operator)
        and (
            each.operator == "DoesNotExist"
            or {*(each.values or ())} >= {*(expression.values or ())}
        )
        for each in without
    )


def requires(alternative: Alternative, key: str, values: Sequence[str]) -> bool:
    """Return whether only nodes with one of the values meet the alternative, or with any value."""
    if key in alternative.labels and (not values or alternative.labels[key] in values):
        return True
    about = alternative.by_key.get(key, ())
    for each in about:
        if values:
            if each.operator == "In" and {*(each.values or ())} <= {*values}:
                return True
        elif each.operator not in ("NotIn", "DoesNotExist"):
            return True
    return False


def requires_labels(alternative: Alternative, selector: Selector) -> bool:
    """Return whether the alternative names each label as something that the node must have.

    And some node that meets the selector can meet it. ``Exists`` selects as a value does; what the
    absence of the label would also meet does not.
    """
    for key in selector:
        if key not in alternative.labels and are_met(alternative.by_key.get(key, ()), None):
            return False
    return bool(selector) and can_match(alternative, selector)


def confines(alternative: Alternative, selectors: Sequence[Selector]) -> bool:
    """Return whether only nodes that meet one of the selectors meet the alternative.

    By what the alternative says of the labels in ``labels``, or with an operator that a node
    without the label does not meet.
    """
    keys = {key for selector in selectors for key in selector}
    allowed = {
        key: values
        for key in keys
        if (values := _allowed_values(alternative, key, selectors)) is not None
    }
    if not all(allowed.values()):
        return True
    return _are_covered(
        frozenset(),
        [selector for selector in selectors if selector.keys() <= allowed.keys()],
        allowed,
    )


def _allowed_values(
    alternative: Alternative, key: str, selectors: Sequence[Selector]
) -> frozenset[str] | None:
    """Return the values that the alternative allows for a label; ``None`` if it may be absent."""
    requirements = alternative.by_key.get(key, ())
    sets = [frozenset(each.values or ()) for each in requirements if each.operator == "In"]
    if key in alternative.labels:
        sets.append(frozenset((alternative.labels[key],)))
    if sets:
        return frozenset.intersection(*sets)
    if are_met(requirements, None):
        return None
    return _named(key, selectors) | {_OTHER}


def _named(key: str, selectors: Sequence[Selector]) -> frozenset[str]:
    return frozenset(value for selector in selectors for value in selector.get(key, ()))


def _are_covered(
    decided: frozenset[str], selectors: Sequence[Selector], allowed: Mapping[str, frozenset[str]]
) -> bool:
    """Return whether each node with allowed values meets one of the selectors.

    The nodes meet what all selectors say of the labels that are decided.
    """
    key = None
    for selector in selectors:
        key = next((key for key in selector if key not in decided), None)
        if key is None:
            return True
    if key is None:
        return False
    named = _named(key, selectors)
    # All values that no selector names are alike.
    values = [*(allowed[key] & named), *islice(allowed[key] - named, 1)]
    return all(
        _are_covered(
            decided | {key},
            [each for each in selectors if not each.get(key) or value in each[key]],
            allowed,
        )
        for value in values
    )
