"""The fields of a document: their values, and their positions in the file."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from webhook.documents.documents import Document
from webhook.documents.objects import Path
from webhook.documents.yaml_reader import Position, Positions, read_positions

ABSENT = object()
"""The value of a field that is absent, as opposed to null."""

MAX_TEXT = 5_000_000
"""Larger documents have no positions, which take a few hundred bytes for each value."""

_STEP = re.compile(r"(?:^|\.)(?P<name>[^.\[]+)|\[(?P<entry>[^\]]*)\]")


def pointer(path: Path) -> str:
    """Return the JSON pointer (RFC 6901) of a path, empty for the root."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)


def field_value(root: Any, field: str) -> Any:
    """Return the value at a field's path, or ``ABSENT``.

    ``field`` is a path as the API server prints it, ``spec.containers[0].image`` with dotted keys
    in brackets, or a JSON pointer, which starts with a slash.
    """
    if field.startswith("/"):
        steps = [step.replace("~1", "/").replace("~0", "~") for step in field[1:].split("/")]
    else:
        steps = _steps(field)
    value = root
    for step in steps:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return ABSENT
    return value


def locate(document: Document, path: Path, field: str) -> Position | None:
    """Return the position of ``field`` of the object at ``path``, or of its nearest parent.

    ``field`` is a path as the API server prints it. The position of an entry of a mapping is that
    of its key. ``None`` if the document does not parse, is very large, or lacks the first step of
    the path.
    """
    value, positions = _positions(document)
    found = None
    for step in (*map(str, path), *_steps(field)):
        position = positions.get(id(value), {}).get(step)
        if position is None:
            break
        found = position
        value = value[int(step)] if isinstance(value, list) else value[step]
    return found and found._replace(line=found.line + document.text_line - 1)


@lru_cache(maxsize=1)
def _positions(document: Document) -> tuple[Any, Positions]:
    """Return the value of a document, read again, with its positions. JSON parses as YAML."""
    if len(document.text) > MAX_TEXT:
        return None, {}
    return read_positions(document.text) or (None, {})


def _steps(field: str) -> list[str]:
    """Return the steps of a path as the API server prints them."""
    return [match["name"] or match["entry"] for match in _STEP.finditer(field)]
