"""Paths within a document: JSON pointers, lookups and replacements."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from webhook.cli.manifests.objects import Path

ABSENT = object()
"""The value of a field that is absent, as opposed to null."""

_STEP = re.compile(r"(?:^|\.)(?P<name>[^.\[]+)|\[(?P<entry>[^\]]*)\]")


def pointer(path: Path) -> str:
    """Return the JSON pointer (RFC 6901) of a path, empty for the root."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)


def replaced(root: Any, replacements: Mapping[Path, Any]) -> Any:
    """Return ``root`` with the value at each path replaced; only its parents are copied."""
    if () in replacements:
        return replacements[()]
    copies: dict[Path, Any] = {(): root.copy()} if replacements else {(): root}
    for path, replacement in replacements.items():
        for depth in range(1, len(path)):
            parent, step, here = copies[path[: depth - 1]], path[depth - 1], path[:depth]
            if here not in copies:
                copies[here] = parent[step] = parent[step].copy()
        copies[path[:-1]][path[-1]] = replacement
    return copies[()]


def field_value(root: Any, field: str) -> Any:
    """Return the value at a field's path, or ``ABSENT``.

    ``field`` is a path as the API server prints it, ``spec.containers[0].image`` with dotted keys
    in brackets, or a JSON pointer, which starts with a slash.
    """
    if field.startswith("/"):
        steps = [step.replace("~1", "/").replace("~0", "~") for step in field[1:].split("/")]
    else:
        steps = field_steps(field)
    value = root
    for step in steps:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return ABSENT
    return value


def field_steps(field: str) -> list[str]:
    """Return the steps of a path as the API server prints them."""
    return [match["name"] or match["entry"] for match in _STEP.finditer(field)]
