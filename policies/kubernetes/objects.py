"""Kubernetes API objects as parsed JSON."""

from __future__ import annotations

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
