"""Where in its file a field of an object stands.

The readers keep no positions, because most runs never ask for any. Where one is asked for, the
document is read again, this time into a tree of nodes with their marks. (JSON is YAML enough.)
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import yaml

from webhook.cli.manifests.documents import Document
from webhook.cli.manifests.objects import Path

MAX_TEXT = 5_000_000
"""A tree of nodes takes a few hundred bytes a node: larger documents are not located in."""

_STEP = re.compile(r"(?:^|\.)(?P<name>[^.\[]+)|\[(?P<entry>[^\]]*)\]")
_MERGE = "<<"


class Position(NamedTuple):
    """Line and column, both from 1, within the file."""

    line: int
    column: int


def locate(document: Document, path: Path, field: str) -> Position | None:
    """Return where ``field`` of the object at ``path`` stands, or the nearest that there is of it.

    ``field`` is a path as the API server prints them: ``spec.containers[0].image``; a key with dots
    stands in brackets. Of an entry of a mapping it is the key's place. ``None`` where there is no
    telling: the document does not parse, is very large, or has not even the first step.
    """
    node = _compose(document)
    steps = [*map(str, path), *(m["name"] or m["entry"] for m in _STEP.finditer(field))]
    mark = None
    for step in steps:
        found = _child(node, step)
        if found is None:
            break
        mark, node = found
    if mark is None:
        return None
    return Position(mark.line + document.text_line, mark.column + 1)


@lru_cache(maxsize=1)
def _compose(document: Document) -> Any:
    if len(document.text) > MAX_TEXT:
        return None
    try:
        return yaml.compose(document.text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return None


def _child(node: Any, step: str) -> tuple[Any, Any] | None:
    """Return the mark and the node one step below ``node``."""
    if isinstance(node, yaml.SequenceNode):
        index = int(step) if step.isdecimal() else len(node.value)
        return (
            (node.value[index].start_mark, node.value[index]) if index < len(node.value) else None
        )
    if not isinstance(node, yaml.MappingNode):
        return None
    for key, value in node.value:
        if key.value == step:
            return key.start_mark, value
    for key, value in node.value:
        if key.value == _MERGE:
            sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for source in sources:
                if found := _child(source, step):
                    return found
    return None
