"""Where in its file a field of an object stands.

The readers keep no positions, because most runs never ask for any. Where one is asked for, the
document is read again, this time into a tree of nodes with their marks. (JSON is YAML enough.)
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import yaml

from webhook.cli.manifests.documents import Document
from webhook.cli.manifests.objects import Path
from webhook.cli.manifests.pointer import field_steps

MAX_TEXT = 5_000_000
"""A tree of nodes takes a few hundred bytes a node: larger documents are not located in."""

_MERGE = "<<"


class Position(NamedTuple):
    """Line and column, both from 1, within the file.

    ``end`` is the column behind what is at fault, on the same line: a key with its value where that
    stands beside it, the key where not.
    """

    line: int
    column: int
    end: int


def locate(document: Document, path: Path, field: str) -> Position | None:
    """Return where ``field`` of the object at ``path`` stands, or the nearest that there is of it.

    ``field`` is a path as the API server prints them: ``spec.containers[0].image``; a key with dots
    stands in brackets. Of an entry of a mapping it is the key's place. ``None`` where there is no
    telling: the document does not parse, is very large, or has not even the first step.
    """
    node = _compose(document)
    steps = [*map(str, path), *field_steps(field)]
    field_node = None
    for step in steps:
        found = _child(node, step)
        if found is None:
            break
        field_node = found
        node = found.value
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
    """Lets an anchor be defined again, as YAML does and PyYAML does not; slow, rarely needed."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if not isinstance(event, yaml.AliasEvent):
            self.anchors.pop(event.anchor, None)
        return super().compose_node(parent, index)


class _Field(NamedTuple):
    """An entry of a mapping or of a list, which has no key."""

    key: Any
    value: Any


def _child(node: Any, step: str) -> _Field | None:
    """Return what is one step below ``node``."""
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
                if found := _child(source, step):
                    return found
    return None


def _span(field: _Field) -> tuple[Any, Any]:
    """Return the marks of where the field starts, and of where it ends on that line."""
    key, value = field
    first = value if key is None else key
    start, end = first.start_mark, value.end_mark
    # What an alias stands for is elsewhere, mostly above.
    if end.line == start.line and end.index > first.start_mark.index:
        return start, end
    if key is not None:
        return start, key.end_mark
    if isinstance(value, yaml.CollectionNode) and value.value:
        inner = value.value[0]
        _, end = _span(_Field(*inner) if isinstance(inner, tuple) else _Field(None, inner))
    return start, end if end.line == start.line else start
