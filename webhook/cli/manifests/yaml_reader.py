"""One YAML document, read as Kubernetes reads it: libyaml's events, go-yaml's meaning.

Source of the meaning: ``decode.go`` of ``go.yaml.in/yaml/v2`` and ``yaml.go`` of
``sigs.k8s.io/yaml``. Stricter than these in what hides mistakes: duplicate keys, unknown tags and a
second document without ``---`` are errors here, and silently dropped there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

from webhook.cli.manifests.errors import ManifestError
from webhook.cli.manifests.scalars import MAY_BE_SPECIAL, Scalar, key_text, resolve_plain
from webhook.cli.manifests.syntax import explain

MAX_DEPTH = 100
"""Nesting beyond this is refused: rules, diff and output recurse."""

MAX_ALIASED = 400_000
"""How many values the aliases of one document may stand for. go-yaml allows as many."""

_TAG = "tag:yaml.org,2002:"
_NUMBER_TAGS = {f"{_TAG}int": int, f"{_TAG}float": float, f"{_TAG}bool": bool}
_TEXT_TAGS = frozenset({f"{_TAG}str", f"{_TAG}timestamp"})
_NULL_TAG = f"{_TAG}null"
_MERGE_TAG = f"{_TAG}merge"
_COLLECTION_TAGS = {
    yaml.MappingStartEvent: (None, "!", f"{_TAG}map"),
    yaml.SequenceStartEvent: (None, "!", f"{_TAG}seq"),
}
_IN_PROGRESS = object()


@dataclass(slots=True)
class Parsed:
    """A document's value or what is wrong with it, and where it and its items start.

    Lines count from 1, within the text; ``span`` is the part of it that holds the value, where that
    is not all.
    """

    value: Any
    line: int
    item_lines: list[int] = field(default_factory=list)
    error: ManifestError | None = None
    span: tuple[int, int] | None = None


def read_yaml(text: str) -> Parsed | None:
    """Return the document that ``text`` holds, ``None`` where it holds nothing but comments.

    Raises:
        ManifestError: it is no YAML, or has what JSON and so Kubernetes cannot have.
    """
    try:
        return _Reader(text).document()
    except yaml.YAMLError as error:
        raise explain(error, text) from error


class _Reader:
    def __init__(self, text: str) -> None:
        self._next = _events(text)
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._values = 0
        self._aliased = 0
        self._item_lines: list[int] = []

    def document(self) -> Parsed | None:
        self._next()
        if type(self._next()) is not yaml.DocumentStartEvent:
            return None
        event = self._next()
        value = self._value(event, 0)
        self._next()
        extra = self._next()
        if type(extra) is not yaml.StreamEndEvent:
            raise _error("a second document starts here", extra, "Put a line with --- before it")
        return Parsed(value, event.start_mark.line + 1, self._item_lines)

    def _value(self, event: Any, depth: int) -> Any:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            value = event.value
            if event.tag is not None or (
                event.implicit[0] and (not value or value[0] in MAY_BE_SPECIAL)
            ):
                value = _resolve(event)
            if event.anchor is not None:
                self._anchors[event.anchor] = (value, 1)
            return value
        if kind is yaml.AliasEvent:
            return self._alias(event)
        if depth == MAX_DEPTH:
            raise _error(f"nested more than {MAX_DEPTH} levels deep", event)
        if event.tag not in _COLLECTION_TAGS[kind]:
            raise _unknown_tag(event)
        if event.anchor is not None:
            return self._anchored(event, depth)
        return self._collection(event, depth)

    def _collection(self, event: Any, depth: int) -> Any:
        if type(event) is yaml.MappingStartEvent:
            return self._mapping(depth + 1)
        return self._sequence(depth + 1)

    def _anchored(self, event: Any, depth: int) -> Any:
        before = self._values
        self._anchors[event.anchor] = (_IN_PROGRESS, 0)
        value = self._collection(event, depth)
        self._anchors[event.anchor] = (value, 1 + self._values - before)
        return value

    def _alias(self, event: Any) -> Any:
        """Return the very value that the anchor names: nothing that is read here is ever edited."""
        value, size = self._anchors.get(event.anchor, (None, 0))
        if value is _IN_PROGRESS:
            raise _error(f"the anchor {event.anchor} contains itself", event)
        if not size:
            raise _error(f"the anchor {event.anchor} is not defined above", event)
        self._values += size
        self._aliased += size
        if self._aliased > MAX_ALIASED:
            raise _error(f"aliases that expand to more than {MAX_ALIASED:,} values", event)
        return value

    def _sequence(self, depth: int, lines: list[int] | None = None) -> list[Any]:
        sequence = []
        get = self._next
        while type(event := get()) is not yaml.SequenceEndEvent:
            if lines is not None:
                lines.append(event.start_mark.line + 1)
            sequence.append(self._value(event, depth))
        self._values += len(sequence)
        return sequence

    def _mapping(self, depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        merged: set[str] = set()
        get = self._next
        while type(event := get()) is not yaml.MappingEndEvent:
            key = self._key(event, depth)
            if key is None:
                self._merge(mapping, merged, depth)
                continue
            if key in mapping and key not in merged:
                raise _error(
                    f"the key {key} is already set above in the same mapping",
                    event,
                    "Remove one of the two",
                )
            merged.discard(key)
            event = get()
            if depth == 1 and key == "items" and _is_plain_sequence(event):
                mapping[key] = self._sequence(depth + 1, self._item_lines)
            else:
                mapping[key] = self._value(event, depth)
        self._values += 2 * len(mapping)
        return mapping

    def _key(self, event: Any, depth: int) -> str | None:
        """Return a mapping's key, ``None`` for the one that merges."""
        if type(event) is yaml.ScalarEvent and event.anchor is None and event.tag is None:
            text: str = event.value
            if not event.implicit[0]:
                return text
            if text and text[0] not in MAY_BE_SPECIAL:
                return None if text == "<<" else text
            value: Any = resolve_plain(text)
        elif type(event) is yaml.ScalarEvent and event.tag == _MERGE_TAG:
            return None
        else:
            value = self._value(event, depth)
        key = key_text(value) if not isinstance(value, dict | list) else None
        if key is None:
            raise _error("a mapping's key must be a string", event, "Put the key in quotes")
        return key

    def _merge(self, mapping: dict[str, Any], merged: set[str], depth: int) -> None:
        """Merge what ``<<`` names over what stands above it, as go-yaml does."""
        event = self._next()
        value = self._value(event, depth)
        sources = value if type(event) is yaml.SequenceStartEvent else [value]
        for source in reversed(sources):
            if not isinstance(source, dict):
                raise _error("<< merges mappings, and this is none", event)
            mapping.update(source)
            merged.update(source)


def _events(text: str) -> Callable[[], Any]:
    """Return a function that returns the next event, and ``None`` after the last."""
    try:
        from yaml.cyaml import CParser  # type: ignore[attr-defined]
    except ImportError:  # PyYAML was built without libyaml, as its wheels never are
        return yaml.Loader(text).get_event
    return CParser(text).get_event


def _resolve(event: Any) -> Scalar:
    tag, text = event.tag, event.value
    if tag in _TEXT_TAGS:
        return str(text)
    value = resolve_plain(text)
    if tag is None or tag == "!":
        pass
    elif tag in _NUMBER_TAGS or tag == _NULL_TAG:
        wanted = _NUMBER_TAGS.get(tag, type(None))
        if wanted is float and type(value) is int:
            value = float(value)
        if type(value) is not wanted:
            raise _error(f"{text} is no {tag.removeprefix(_TAG)}, as its tag says", event)
    else:
        raise _unknown_tag(event)
    if type(value) is float and not math.isfinite(value):
        raise _error(
            f"{text} is a number that JSON does not have",
            event,
            "Put it in quotes if it is meant as text",
        )
    return value


def _is_plain_sequence(event: Any) -> bool:
    return type(event) is yaml.SequenceStartEvent and event.anchor is None and event.tag is None


def _unknown_tag(event: Any) -> ManifestError:
    tag = event.tag.replace(_TAG, "!!")
    return _error(f"the tag {tag} means nothing to Kubernetes", event, "Remove the tag")


def _error(problem: str, event: Any, cure: str = "") -> ManifestError:
    mark = event.start_mark
    return ManifestError(problem, line=mark.line + 1, column=mark.column + 1, cure=cure)
