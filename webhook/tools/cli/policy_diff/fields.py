"""The fields in which two policies differ.

The policies are compared as documents in normal form: with defaults, and with sets in one order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import date
from typing import Any, NamedTuple

from policies.document import API_VERSION, KIND, MAPPINGS, PolicyError, parse_policy
from policies.kubernetes.field_types import NameSet, camel_case
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.paths import below
from policies.policy import Policy

_IN_ANY_ORDER = ("customWorkloads", "exceptions", "matchExpressions")
"""Lists of parts whose order decides nothing."""


class ChangedField(NamedTuple):
    """A field with different values in two policies; ``None`` where one does not have it.

    ``steps`` lead to the field in the new document. ``remark`` is what a comparison did not find.
    """

    path: str
    before: Any
    after: Any
    steps: tuple[str | int, ...] = ()
    remark: str = ""

    def __str__(self) -> str:
        before, after = ("not set" if v is None else flow(v) for v in (self.before, self.after))
        return f"{self.path}: {before} → {after}" + (f" ({self.remark})" if self.remark else "")


class _Sides(NamedTuple):
    """A value in both documents; ``schema`` is its path without keys."""

    old: Any
    new: Any
    path: str = ""
    steps: tuple[str | int, ...] = ()
    schema: str = ""


def changed_fields(old: Policy, new: Policy) -> list[ChangedField]:
    """Return the fields in which the policies differ after normalization."""
    return list(_changes(_Sides(document(old), document(new))))


def document(value: Any, key: str = "") -> Any:
    """Return a part of a policy in normal form, as JSON."""
    if is_dataclass(value):
        own = {camel_case(each.name): getattr(value, each.name) for each in fields(value)}
        if isinstance(value, Policy):
            own["hardening"] = value.effective_hardening.settings
        return {name: document(each, name) for name, each in own.items() if each is not None}
    match value:
        case Mapping():
            return {name: document(each) for name, each in value.items()}
        case NameSet():
            return value.patterns
        case frozenset():
            return sorted(value)
        case tuple():
            items = [document(each) for each in value]
            # Annotations are in the order in which they are looked for.
            is_set = key != "annotations" and all(isinstance(each, str) for each in items)
            return sorted({*items}) if is_set else items
        case date():
            return value.isoformat()
    return value


def with_old_value(field: ChangedField, new: Policy) -> Policy | None:
    """Return the new policy with the old value of a field; ``None`` if there is no such policy."""
    if not field.steps:
        return None
    spec: Any = document(new)
    *steps, last = field.steps
    part: Any = spec
    for step in steps:
        part = part[step]
    if isinstance(part, list) and field.after is None:
        part.insert(int(last), field.before)
    elif field.before is None:
        del part[last]
    else:
        part[last] = field.before
    with suppress(PolicyError):
        metadata = {"name": "gpufence"}
        return parse_policy(
            {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
        )
    return None


def _changes(sides: _Sides) -> Iterator[ChangedField]:
    old, new, path, steps, schema = sides
    if isinstance(old, dict) and isinstance(new, dict):
        is_free = schema.rpartition(".")[2] in MAPPINGS
        for key in {**old, **new}:
            yield from _changes(
                _Sides(
                    old.get(key),
                    new.get(key),
                    below(path, key, in_brackets=is_free).removeprefix("."),
                    (*steps, key),
                    schema if is_free else f"{schema}.{key}".removeprefix("."),
                )
            )
    elif isinstance(old, list) and any(isinstance(each, dict) for each in [*old, *(new or ())]):
        yield from _changes_of_list(sides)
    elif old != new:
        yield ChangedField(path, old, new, steps)


def _changes_of_list(sides: _Sides) -> Iterator[ChangedField]:
    """Yield the changes of a list of parts: of its entries, and of their order."""
    old, new, path, steps, schema = sides
    pairs = _pairs(old, new)
    both = [after for before, after in sorted(pairs.items()) if after is not None]
    if both != sorted(both) and not schema.endswith(_IN_ANY_ORDER):
        titles = [[_title(new[n]) for n in order] for order in (both, sorted(both))]
        yield ChangedField(f"{path} (order)", titles[0], titles[1])
    entries = [
        (old[before], None if after is None else new[after], before if after is None else after)
        for before, after in pairs.items()
    ]
    entries += [(None, each, n) for n, each in enumerate(new) if n not in both]
    for was, now, n in entries:
        own = f"{path}[{(now or was or {}).get('name', n)}]"
        yield from _changes(_Sides(was, now, own, (*steps, n), schema))


def _pairs(old: list[JSONObject], new: list[JSONObject]) -> dict[int, int | None]:
    """Return by the position of an entry before its position now: of an equal one, or the likest.

    Entries with names are like each other if either the name or all else is equal.
    """
    pairs: dict[int, int | None] = {}
    left = [*range(len(new))]
    for is_like in (
        lambda was, now: was == now,
        lambda was, now: was.get("name", was.get("group", 0)) == now.get("name", now.get("group")),
        lambda was, now: {**was, "name": now.get("name")} == now,
        lambda was, now: not ({"name", "group"} & was.keys()),
    ):
        for before, was in enumerate(old):
            if pairs.get(before) is None:
                pairs[before] = next((n for n in left if is_like(was, new[n])), None)
                left = [n for n in left if n != pairs[before]]
    return pairs


def _title(entry: JSONObject) -> str:
    """Return a part of a list in few words."""
    return str(entry.get("name") or flow(next(iter(entry.values()), "")))


def flow(value: Any) -> str:
    """Return a value as YAML in one line, without fields that are empty."""
    match value:
        case dict():
            shown = (f"{key}: {flow(each)}" for key, each in value.items() if each not in ({}, []))
            return f"{{{', '.join(shown)}}}"
        case list():
            return f"[{', '.join(map(flow, value))}]"
        case str():
            return value
    return json.dumps(value)
