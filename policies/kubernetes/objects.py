"""Kubernetes API objects as parsed JSON."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

JSONObject = dict[str, Any]
"""A JSON object. Nothing is dropped and no default is filled in."""

ObjectKey = tuple[str, str]
"""Namespace and name of an object."""


class MalformedObjectError(ValueError):
    """The object does not match its kind: the path, and the problem."""

    fault = "malformed"

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


class OversizedObjectError(MalformedObjectError):
    """The object exceeds a limit of gpufence."""

    fault = "too large"


def mapping(value: Any) -> JSONObject:
    """Return the value if it is a mapping, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[tuple[int, JSONObject]]:
    """Return the mappings in a list, each with its index; none if the value is not a list."""
    if not isinstance(value, list):
        return []
    return [(index, item) for index, item in enumerate(value) if isinstance(item, dict)]


MAX_DEPTH = 100
"""Deeper nesting is an error: rules, diff and output recurse. Objects of the API nest far less."""


def is_too_deep(value: Any) -> bool:
    """Return whether a value is nested more than ``MAX_DEPTH`` levels deep."""
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


MERGE_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "containers": "name",
        "env": "name",
        "ephemeralContainers": "name",
        "initContainers": "name",
        "resourceClaims": "name",
        "volumeMounts": "mountPath",
        "volumes": "name",
    }
)
"""Lists that are merged item by item, and the field that identifies an item.

Other lists are replaced, ``tolerations`` among them.
"""


def merge(base: Any, patch: Any, keys: Mapping[str, str] = MERGE_KEYS, field: str = "") -> Any:
    """Return ``base`` with ``patch`` over it. Neither is changed; the result shares parts of both.

    ``keys`` are the merge keys of lists, ``field`` is the name of the field that holds the values.
    """
    if isinstance(base, dict) and isinstance(patch, dict):
        merged = dict(base)
        for name, value in patch.items():
            merged[name] = merge(merged.get(name), value, keys, name)
        return merged
    key = keys.get(field)
    if key and _is_keyed(base, key) and _is_keyed(patch, key):
        items = {item[key]: item for item in base}
        for item in patch:
            items[item[key]] = merge(items.get(item[key]), item, keys)
        return list(items.values())
    return patch


def _is_keyed(value: Any, key: str) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, dict) and isinstance(item.get(key), str) for item in value
    )
