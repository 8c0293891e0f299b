"""The fields of a document: their values, and their positions in the file.

The readers keep no positions, because most runs need none. To locate a field, the document is
parsed again, into a tree of nodes with their marks. JSON parses as YAML.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import yaml

from webhook.documents.documents import Document
from webhook.documents.objects import Path

ABSENT = object()
"""The value of a field that is absent, as opposed to null."""

_STEP = re.compile(r"(?:^|\.)(?P<name>[^.\[]+)|\[(?P<entry>[^\]]*)\]")

MAX_TEXT = 5_000_000
"""Larger documents have no positions: a tree takes a few hundred bytes for each node."""

_MERGE = "<<"


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


class Position(NamedTuple):
    """Line and column, both from 1, within the file.

    ``end`` is the column after the field on the same line: after a key with its value, or after the
    key if the value is on other lines.
    """

    line: int
    column: int
    end: int


def locate(document: Document, path: Path, field: str) -> Position | None:
    """Return the position of ``field`` of the object at ``path``, or of its nearest parent.

    ``field`` is a path as the API server prints it: ``spec.containers[0].image``, with dotted keys
    in brackets. The position of an entry of a mapping is that of its key. ``None`` if the document
    does not parse, is very large, or lacks the first step of the path.
    """
    node = _compose(document)
    steps = [*map(str, path), *field_steps(field)]
    field_node = None
    for step in steps:
        child = _child(node, step)
        if child is None:
            break
        field_node = child
        node = child.value
    if field_node is None:
        return None
    start, end = _span(field_node)
    return Position(start.line + document.text_line, start.column + 1, end.column + 1)


@lru_cache(maxsize=1)
def _compose(document: Document) -> Any:
    if len(document.text) > MAX_TEXT:
        return None
    for loader in (getattr(yaml, "CSafeLoader", yaml.SafeLoader), _Lenient):
        try:
            return yaml.compose(document.text, Loader=loader)
        except yaml.composer.ComposerError:
            continue
        except yaml.YAMLError:
            break
    return None


class _Lenient(yaml.SafeLoader):
    """Accepts anchors that are defined twice, as YAML does and PyYAML does not."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if not isinstance(event, yaml.AliasEvent):
            self.anchors.pop(event.anchor, None)
        return super().compose_node(parent, index)


class _Field(NamedTuple):
    """An entry of a mapping, or of a list, which has no key."""

    key: Any
    value: Any


def _child(node: Any, step: str) -> _Field | None:
    """Return the child of ``node``."""
    if isinstance(node, yaml.SequenceNode):
        index = int(step) if step.isdecimal() else len(node.value)
        return _Field(None, node.value[index]) if index < len(node.value) else None
    if not isinstance(node, yaml.MappingNode):
        return None
    for key, value in node.value:
        if key.value == step:
            return _Field(key, value)
    for key, value in node.value:
        if key.value == _MERGE:
            sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for source in sources:
                if child := _child(source, step):
                    return child
    return None


def _span(field: _Field) -> tuple[Any, Any]:
    """Return the marks of the start of the field, and of its end on that line."""
    key, value = field
    first = value if key is None else key
    start, end = first.start_mark, value.end_mark
    # The value of an alias is elsewhere, mostly above.
    if end.line == start.line and end.index > first.start_mark.index:
        return start, end
    if key is not None:
        return start, key.end_mark
    if isinstance(value, yaml.CollectionNode) and value.value:
        inner = value.value[0]
        _, end = _span(_Field(*inner) if isinstance(inner, tuple) else _Field(None, inner))
    return start, end if end.line == start.line else start
