"""The objects of a document, itself or the items of a List, and the places of their fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import msgspec
import yaml

from policies.kubernetes.objects import JSONObject
from policies.kubernetes.paths import Path, steps
from webhook.documents.document import Document, DocumentError, looks_like_template
from webhook.documents.scalars import MERGE_TAG, plain_key
from webhook.documents.yaml_reader import Parser

Node: TypeAlias = Any
"""A node of PyYAML, or None."""

MAX_TEXT = 5_000_000
"""Larger documents have no positions, which take a few hundred bytes for each value."""

KUSTOMIZE_KINDS = ("Kustomization", "Component")
"""The kinds of kustomize's own files, which may omit their apiVersion."""

_TEMPLATE_NOTE = "is a template, with placeholders such as {{ }}"
_OF_SED = re.compile(r":\s+@[A-Z][A-Z0-9_]*@")
"""A value that sed or autoconf replaces. No value of YAML starts with this character."""
_NAMES_API = re.compile(r"apiVersion[\"']?\s*:")
"""What every object has, also one that does not parse: directories hold other files as well."""
_PATCH_NOTE = "has no {}, as a patch may"
_CURES = {
    "apiVersion": "Write the one that kubectl api-resources shows for its kind",
    "kind": "Write one that kubectl api-resources shows",
}
_TYPES = {
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a mapping",
    type(None): "null",
}


class Position(NamedTuple):
    """Line and column, both from 1.

    ``end`` is the column after the field on the same line: after a key with its value, or after the
    key if the value is on other lines.
    """

    line: int
    column: int
    end: int


class Manifest(msgspec.Struct, eq=False):
    """One object and where it comes from, or what is wrong with it.

    ``item`` is its number among the objects of a List, from 0, and ``None`` outside of one;
    ``path`` leads to it from the root of the document. ``value`` has apiVersion and kind also where
    a typed list (a PodList) leaves them out of its items. It is ``None`` for a document that is not
    an object of the API; ``note`` may say what it seems to be. ``duplicate`` is about a key that is
    set twice.
    """

    document: Document
    item: int | None
    path: Path
    line: int
    value: JSONObject | None = None
    error: DocumentError | None = None
    duplicate: DocumentError | None = None
    note: str = ""


def read_objects(document: Document) -> Iterator[Manifest]:
    """Yield the document's objects in order; a broken object comes with its error."""
    manifests = list(_objects(document))
    if document.duplicate is not None and manifests:
        above = [manifest for manifest in manifests if manifest.line <= document.duplicate.line]
        (above or manifests)[-1].duplicate = document.duplicate
    return iter(manifests)


def _objects(document: Document) -> Iterator[Manifest]:
    value = document.value
    if document.error is None and isinstance(value, dict) and _is_list(value):
        yield from _items(document, (), value, document.line, count())
        return
    manifest = Manifest(document, None, (), document.line)
    if document.error is not None:
        is_template = looks_like_template(document.text) or _OF_SED.search(document.text)
        if document.lenient and document.error.for_kubectl and is_template:
            manifest.note = _TEMPLATE_NOTE
        elif document.lenient and document.text and not _NAMES_API.search(document.text):
            manifest.note = f"names no apiVersion, and {document.error.problem}"
        else:
            manifest.error = document.error
    elif not isinstance(value, list):
        _read_object(manifest, value)
    elif any(isinstance(entry, dict) and entry.get("kind") is not None for entry in value):
        manifest.error = DocumentError(
            "is a list, not an object of the Kubernetes API",
            cure="Put the objects under items of an object with apiVersion: v1 and kind: List",
        )
    yield manifest


def _items(
    document: Document, path: Path, value: JSONObject, line: int, numbers: Iterator[int]
) -> Iterator[Manifest]:
    """Yield the items of a List, numbered across nested Lists."""
    items = value.get("items")
    others = value.keys() - {"apiVersion", "kind", "metadata", "items"}
    problem = ""
    if others and not value["kind"].endswith("List"):
        problem = (
            f"has items and {min(others):.60}: kubectl reads it as a list, and other tools as one "
            f"object of kind {value['kind']:.60}"
        )
        cure = "Remove items, or write kind: List"
    elif not isinstance(items, list | None):
        problem = f"items must be a list, but is {_TYPES[type(items)]}"
        cure = "Write the objects as entries of a list, each with - before it"
    if problem:
        error = DocumentError(problem, line=line, cure=cure)
        yield Manifest(document, None, path, line, error=error)
        return
    lines = document.item_lines if not path and items else []
    for index, item in enumerate(items or ()):
        item_path = (*path, "items", index)
        line = lines[index] if lines else line
        if isinstance(item, dict) and _is_list(item):
            yield from _items(document, item_path, item, line, numbers)
        else:
            manifest = Manifest(document, next(numbers), item_path, line)
            _read_object(manifest, _typed(item, value) if isinstance(item, dict) else item)
            yield manifest


def _read_object(manifest: Manifest, value: Any) -> None:
    """Set the value of a manifest, or its error.

    Without both, a mapping is not meant for the API: directories hold other files as well.
    """
    if not isinstance(value, dict):
        cure = "Remove it, or write an object with apiVersion and kind"
        if isinstance(value, str) and value.startswith(("NAME ", "NAMESPACE ")):
            cure = "It looks like a table of kubectl get: add -o yaml to the command"
        problem = f"is {_TYPES[type(value)]}, not an object of the Kubernetes API"
        manifest.error = DocumentError(problem, line=manifest.line, cure=cure)
        return
    kind, version = value.get("kind"), value.get("apiVersion")
    if kind is version is None or (kind in KUSTOMIZE_KINDS and not isinstance(version, str)):
        return
    if manifest.document.lenient and (kind is None or version is None):
        manifest.note = _PATCH_NOTE.format("kind" if kind is None else "apiVersion")
        return
    manifest.value = value
    for key, field in (("apiVersion", version), ("kind", kind)):
        if not isinstance(field, str):
            problem = f"must be a string, but is {_TYPES[type(field)]}"
            problem = f"{key} {'is missing' if field is None else problem}"
            manifest.error = DocumentError(problem, line=manifest.line, cure=_CURES[key])
            return


def _is_list(value: JSONObject) -> bool:
    """Return whether kubectl applies the items: every object with items is a list.

    Source: ``decode`` in ``k8s.io/apimachinery``'s ``unstructured/helpers.go``.
    """
    kind = value.get("kind")
    if kind == "List" and value.get("apiVersion") == "v1":
        return True
    return isinstance(kind, str) and "items" in value


def _typed(item: JSONObject, parent: JSONObject) -> JSONObject:
    """Follow ``decodeToList`` in ``k8s.io/apimachinery``'s ``unstructured/helpers.go``."""
    kind, version = parent["kind"].removesuffix("List"), parent.get("apiVersion")
    if not kind or item.get("kind") or item.get("apiVersion"):
        return item
    return {**item, "apiVersion": version, "kind": kind}


# Fields.


def locate(document: Document, path: Path, field: str) -> Position | None:
    """Return the position of ``field`` of the object at ``path``, or of its nearest parent.

    ``field`` is a path as the API server prints it. The position of an entry of a mapping is that
    of its key. ``None`` if the document does not parse, defines an anchor twice, is very large, or
    lacks the first step of the path.

    The document keeps the positions, because every report has them.
    """
    positions: dict[tuple[Path, str], Position | None] = document.positions
    if (path, field) not in positions:
        positions[path, field] = _position(document, (*map(str, path), *steps(field)))
    return positions[path, field]


def _position(document: Document, path: tuple[str, ...]) -> Position | None:
    node, found = _root_node(document), None
    for step in path:
        entry = _entry(node, step)
        if entry is None:
            break
        found, node = entry, entry[1]
    if found is None:
        return None
    start = (found[0] or found[1]).start_mark
    return Position(document.text_line + start.line, start.column + 1, _end(*found) + 1)


@lru_cache(maxsize=1)
def _root_node(document: Document) -> Node:
    """Return the root of a document as PyYAML composes it. JSON parses as YAML.

    Only that of the last document is kept: the nodes take about 50 times the memory of the text.
    """
    if document.error is not None or len(document.text) > MAX_TEXT:
        return None
    try:
        return Parser(document.text).get_single_node()
    except yaml.YAMLError:
        return None


def _entry(node: Node, step: str) -> tuple[Node, Node] | None:
    """Return the key and the value of an entry; an entry of a list has no key.

    The last of duplicate keys counts.
    """
    if isinstance(node, yaml.SequenceNode):
        is_index = step.isdecimal() and int(step) < len(node.value)
        return (None, node.value[int(step)]) if is_index else None
    return _entry_of_mapping(node, step, set())


def _entry_of_mapping(node: Node, step: str, searched: set[int]) -> tuple[Node, Node] | None:
    """Return the last entry with the key, also of the mappings that ``<<`` names.

    Each mapping is searched once: few lines of aliases of aliases name millions.
    """
    if not isinstance(node, yaml.MappingNode) or id(node) in searched:
        return None
    searched.add(id(node))
    for key, value in reversed(node.value):
        if key.tag == MERGE_TAG:
            # Of several mappings, the first one counts.
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if found := _entry_of_mapping(source, step, searched):
                    return found
        elif (key.value if key.style else plain_key(key.value)) == step:
            return key, value
    return None


def _end(key: Node, value: Node) -> int:
    """Return the column after an entry on its first line, from 0.

    That is after the key if the value is on other lines, or stands at an anchor.
    """
    start, end = (key or value).start_mark, value.end_mark
    if end.line == start.line and end.index > start.index:
        return int(end.column)
    if key is not None:
        return int(key.end_mark.column)
    for first_key, first_value in entries_of(value)[:1]:
        if (first_key or first_value).start_mark.line == start.line:
            return _end(first_key, first_value)
    return int(start.column)


def entries_of(node: Node) -> list[tuple[Node, Node]]:
    """Return the entries of a collection, each a key and a value; those of a list have no key."""
    if isinstance(node, yaml.MappingNode):
        return list(node.value)
    return [(None, value) for value in node.value] if isinstance(node, yaml.SequenceNode) else []
