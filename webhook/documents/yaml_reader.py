"""One YAML document, read as Kubernetes reads it: libyaml's events, go-yaml's meaning.

Source of the meaning: ``decode.go`` of ``go.yaml.in/yaml/v2`` and ``yaml.go`` of
``sigs.k8s.io/yaml``. This reader is stricter about mistakes that these drop silently: unknown tags
and a second document without ``---`` are errors, and duplicate keys are reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from webhook.documents.errors import ManifestError
from webhook.documents.parsed import (
    DUPLICATE_CURE,
    MAX_DEPTH,
    TOO_DEEP,
    TOO_DEEP_CURE,
    Parsed,
)
from webhook.documents.placeholders import looks_like_template
from webhook.documents.scalars import MAY_BE_SPECIAL, key_text, plain_key
from webhook.documents.syntax import HELM_CURE, clamp_to_text, explain
from webhook.documents.yaml_tags import MERGE_TAG, check_collection, event_error, resolve

MAX_ALIASED = 400_000
"""The maximum number of values that the aliases of one document expand to, as in go-yaml."""


class _Anchored(NamedTuple):
    """A value with an anchor: the number of values in it, and its depth."""

    value: Any
    size: int
    height: int


_IN_PROGRESS = _Anchored(None, 0, 0)


def read_yaml(text: str) -> Parsed | None:
    """Return the document that ``text`` holds, or ``None`` if it holds only comments.

    Raises:
        ManifestError: it is not YAML, or has a value that JSON and Kubernetes do not have.
    """
    try:
        return _Reader(text).document()
    except yaml.YAMLError as error:
        raise explain(error, text) from error
    except ManifestError as error:
        error.cure = HELM_CURE if looks_like_template(text) else error.cure
        clamp_to_text(error, text)
        raise


class _Reader:
    def __init__(self, text: str) -> None:
        self._next = _events(text)
        self._anchors: dict[str, _Anchored] = {}
        self._values = 0
        self._aliased = 0
        self._deepest = 0
        self._item_lines: list[int] = []
        self._duplicate: ManifestError | None = None

    def document(self) -> Parsed | None:
        self._next()
        if type(self._next()) is not DocumentStartEvent:
            return None
        event = self._next()
        value = self._value(event, 0)
        self._next()
        extra = self._next()
        if type(extra) is not StreamEndEvent:
            raise event_error(
                "a second document starts here", extra, "Put a line with --- before it"
            )
        line = event.start_mark.line + 1
        return Parsed(value, line, self._item_lines, duplicate=self._duplicate)

    def _value(self, event: Any, depth: int) -> Any:
        kind = type(event)
        if kind is ScalarEvent:
            value = event.value
            plain, quoted = event.implicit
            if plain:
                if not value or value[0] in MAY_BE_SPECIAL:
                    value = resolve(event)
            elif not quoted:
                value = resolve(event)
            if event.anchor is not None:
                self._anchors[event.anchor] = _Anchored(value, 1, 0)
            return value
        if kind is AliasEvent:
            return self._alias(event, depth)
        if depth == MAX_DEPTH:
            raise event_error(TOO_DEEP, event, TOO_DEEP_CURE)
        if event.tag is not None:
            check_collection(event)
        if event.anchor is not None:
            return self._anchored(event, depth)
        return self._collection(event, depth)

    def _collection(self, event: Any, depth: int) -> Any:
        depth += 1
        if depth > self._deepest:
            self._deepest = depth
        return self._mapping(depth) if type(event) is MappingStartEvent else self._sequence(depth)

    def _anchored(self, event: Any, depth: int) -> Any:
        values, deepest = self._values, self._deepest
        self._anchors[event.anchor] = _IN_PROGRESS
        self._deepest = depth
        value = self._collection(event, depth)
        size, height = 1 + self._values - values, self._deepest - depth
        self._anchors[event.anchor] = _Anchored(value, size, height)
        self._deepest = max(deepest, self._deepest)
        return value

    def _alias(self, event: Any, depth: int) -> Any:
        """Return the value of the anchor itself: values are never edited."""
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            raise event_error(
                f"the anchor {event.anchor:.60} is not defined above",
                event,
                "Define it in the same document, or write its value here",
            )
        if anchored is _IN_PROGRESS:
            raise event_error(
                f"the anchor {event.anchor:.60} contains itself", event, "Write the value here"
            )
        self._values += anchored.size
        self._aliased += anchored.size
        self._deepest = max(self._deepest, depth + anchored.height)
        if self._aliased > MAX_ALIASED:
            raise event_error(
                f"aliases that expand to more than {MAX_ALIASED:,} values",
                event,
                "Use fewer aliases of aliases",
            )
        if self._deepest > MAX_DEPTH:
            raise event_error(TOO_DEEP, event, TOO_DEEP_CURE)
        return anchored.value

    def _sequence(self, depth: int, lines: list[int] | None = None) -> list[Any]:
        sequence = []
        get = self._next
        while type(event := get()) is not SequenceEndEvent:
            if lines is not None:
                lines.append(event.start_mark.line + 1)
            sequence.append(self._value(event, depth))
        self._values += len(sequence)
        return sequence

    def _mapping(self, depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        merged: set[str] = set()
        get = self._next
        while type(event := get()) is not MappingEndEvent:
            # Nearly every key is a bare word that occurs often.
            is_bare = (
                type(event) is ScalarEvent
                and event.implicit[0]
                and event.tag is None
                and event.anchor is None
            )
            key = plain_key(event.value) if is_bare else None
            if key is None and (key := self._key(event, depth)) is None:
                self._merge(mapping, merged, depth)
                continue
            if key in mapping:
                if key in merged:
                    merged.remove(key)
                elif self._duplicate is None:
                    problem = f"the key {key:.60} is already set above in the same mapping"
                    self._duplicate = event_error(problem, event, DUPLICATE_CURE)
            event = get()
            if depth == 1 and key == "items" and _is_plain_sequence(event):
                self._item_lines = []
                mapping[key] = self._sequence(depth + 1, self._item_lines)
            else:
                mapping[key] = self._value(event, depth)
        self._values += 2 * len(mapping)
        return mapping

    def _key(self, event: Any, depth: int) -> str | None:
        """Return a mapping's key, or ``None`` for the merge key."""
        if type(event) is ScalarEvent and (
            event.tag == MERGE_TAG or (event.implicit[0] and event.value == "<<")
        ):
            return None
        value = self._value(event, depth)
        key = key_text(value) if not isinstance(value, dict | list) else None
        if key is None:
            raise event_error("a mapping's key must be a string", event, "Put the key in quotes")
        return key

    def _merge(self, mapping: dict[str, Any], merged: set[str], depth: int) -> None:
        """Merge the mappings that ``<<`` names over the keys above it, as go-yaml does."""
        event = self._next()
        value = self._value(event, depth)
        sources = value if type(event) is SequenceStartEvent else [value]
        for source in reversed(sources):
            if not isinstance(source, dict):
                raise event_error(
                    "<< merges mappings, but this is not a mapping",
                    event,
                    "Name the anchor of a mapping",
                )
            mapping.update(source)
            merged.update(source)


def _events(text: str) -> Callable[[], Any]:
    """Return a function that returns the next event, and ``None`` after the last."""
    try:
        from yaml.cyaml import CParser  # type: ignore[attr-defined]
    except ImportError:  # PyYAML without libyaml, unlike its wheels
        return yaml.Loader(text).get_event
    return CParser(text).get_event


def _is_plain_sequence(event: Any) -> bool:
    return type(event) is SequenceStartEvent and event.anchor is None and event.tag is None
