"""One YAML document, read as Kubernetes reads it: libyaml's events, go-yaml's meaning.

Source of the meaning: ``decode.go`` of ``go.yaml.in/yaml/v2`` and ``yaml.go`` of
``sigs.k8s.io/yaml``. This reader is stricter about mistakes that these drop silently: unknown tags
and a second document without ``---`` are errors, and duplicate keys are reported.
"""

from __future__ import annotations

import re
from typing import Any

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

from policies.kubernetes.objects import MAX_DEPTH
from webhook.documents.document import HELM_CURE, Document, DocumentError, looks_like_template
from webhook.documents.scalars import (
    MAY_BE_SPECIAL,
    MERGE_TAG,
    Scalar,
    bare_word,
    check_collection,
    event_error,
    key_text,
    resolve,
)
from webhook.wording import counted

DUPLICATE_CURE = "Remove one of the two: kubectl uses the second and drops the first"

TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
TOO_DEEP_CURE = "Check the tool that wrote it: no object of the Kubernetes API nests so deep"

MAX_ALIASED = 400_000
"""The maximum number of values that the aliases of one document expand to, as in go-yaml."""

# PyYAML has no C parser where it is built without libyaml, unlike its wheels.
Parser: Any = getattr(yaml, "CLoader", yaml.Loader)

_NO_TABS = "Indent with spaces: YAML does not accept tabs there"
# The messages of the parser, with the usual cause.
_CURES = {
    "found a tab character": _NO_TABS,
    "mapping values are not allowed": (
        'Put the value in quotes if it holds ": ", or align the line with its neighbors'
    ),
    "did not find expected key": "Align the line with its neighbors, or look for a stray quote",
    "expected <block end>": "Align the line with its neighbors",
    "did not find expected '-' indicator": "Align the line with the list entries above it",
    "did not find expected <document start>": (
        "The document ended above: look for a stray line, or put a line with --- in between"
    ),
    "could not find expected ':'": "Look for a missing colon, or a quote that is not closed",
    "found unexpected end of stream": "Look for a quote that is not closed",
    "did not find expected ',' or": "Look for a missing comma, or a bracket that is not closed",
    "did not find expected node content": (
        "Look for a bracket that is not closed, or a comma too many"
    ),
    "block sequence entries are not allowed": "Put the list on the next line",
}
_LINE_BREAK = re.compile("\r\n?|\n")
# Characters that YAML does not accept unescaped (YAML 1.1, 4.1.1). The pattern is compiled on use,
# because it is rarely needed and takes long to compile.
_NOT_PRINTABLE = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|\ufffe|\uffff"


_IN_PROGRESS = object()
"""The value of an anchor that the reader has not completed."""


def read_yaml(text: str) -> Document | None:
    """Return the document that ``text`` holds, or ``None`` if it holds only comments.

    Raises:
        DocumentError: it is not YAML, or has a value that JSON and Kubernetes do not have.
    """
    reader = None
    try:
        reader = _Reader(text)
        return reader.document()
    except yaml.YAMLError as error:
        located = _syntax_error(error, text)
        # kubectl creates the first document, and does not read what is below its end.
        located.for_kubectl = reader is None or not reader.is_complete
        raise located from error
    except DocumentError as error:
        error.cure = HELM_CURE if looks_like_template(text) else error.cure
        _clamp_to_text(error, text)
        raise


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self.is_complete = False
        """Whether the first document has ended."""
        self._next = Parser(text).get_event
        self._anchors: dict[str, Any] = {}
        self._spellings: dict[int, tuple[dict[str, Any], dict[str, Scalar]]] = {}
        self._measured: dict[int, tuple[Any, int, int]] = {}
        self._aliased = 0
        self._item_lines: list[int] = []
        self._duplicate: DocumentError | None = None

    def document(self) -> Document | None:
        self._next()
        if type(self._next()) is not DocumentStartEvent:
            return None
        event = self._next()
        value = self._value(event, 0)
        self._next()
        self.is_complete = True
        extra = self._next()
        if type(extra) is not StreamEndEvent:
            raise event_error(
                "a second document starts here", extra, "Put a line with --- before it"
            )
        line = event.start_mark.line + 1
        return Document(
            line, self._text, 1, value, item_lines=self._item_lines, duplicate=self._duplicate
        )

    def _value(self, event: Any, depth: int) -> Any:
        kind, anchor = type(event), event.anchor
        if kind is AliasEvent:
            return self._alias(event, depth)
        if anchor is not None and self._anchors.get(anchor) is _IN_PROGRESS:
            # Readers of YAML understand it differently.
            raise event_error(
                f"the anchor {anchor:.60} is defined again within its own value",
                event,
                "Give one of the two another name",
            )
        if kind is ScalarEvent:
            value = event.value
            plain, quoted = event.implicit
            if not (plain or quoted) or (plain and (not value or value[0] in MAY_BE_SPECIAL)):
                value = resolve(event)
        else:
            if depth == MAX_DEPTH:
                raise event_error(TOO_DEEP, event, TOO_DEEP_CURE)
            if event.tag is not None:
                check_collection(event)
            if anchor is not None:
                self._anchors[anchor] = _IN_PROGRESS
            below = depth + 1
            value = self._mapping(below) if kind is MappingStartEvent else self._sequence(below)
        if anchor is not None:
            self._anchors[anchor] = value
        return value

    def _alias(self, event: Any, depth: int) -> Any:
        """Return the value of the anchor itself: values are never edited."""
        if event.anchor not in self._anchors:
            raise event_error(
                f"the anchor {event.anchor:.60} is not defined above",
                event,
                "Define it in the same document, or write its value here",
            )
        value = self._anchors[event.anchor]
        if value is _IN_PROGRESS:
            raise event_error(
                f"the anchor {event.anchor:.60} contains itself", event, "Write the value here"
            )
        size, height = self._measure(value)
        self._aliased += size
        if self._aliased > MAX_ALIASED:
            raise event_error(
                f"aliases that expand to more than {MAX_ALIASED:,} values",
                event,
                "Use fewer aliases of aliases",
            )
        if depth + height > MAX_DEPTH:
            raise event_error(TOO_DEEP, event, TOO_DEEP_CURE)
        return value

    def _measure(self, value: Any) -> tuple[int, int]:
        """Return the number of values in a value, with aliases expanded, and its depth."""
        if not isinstance(value, dict | list):
            return 1, 0
        if id(value) not in self._measured:
            parts = value.values() if isinstance(value, dict) else value
            measures = [self._measure(part) for part in parts]
            keys = len(value) if isinstance(value, dict) else 0
            size = 1 + keys + sum(size for size, _ in measures)
            height = 1 + max((height for _, height in measures), default=0)
            # The value itself is kept, so that no other gets its id.
            self._measured[id(value)] = value, size, height
        _, size, height = self._measured[id(value)]
        return size, height

    def _sequence(self, depth: int, lines: list[int] | None = None) -> list[Any]:
        sequence: list[Any] = []
        get = self._next
        while type(event := get()) is not SequenceEndEvent:
            if lines is not None:
                lines.append(event.start_mark.line + 1)
            sequence.append(self._value(event, depth))
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
            key = bare_word(event.value) if is_bare else None
            written: Scalar = key
            if key is None:
                if self._is_merge(event):
                    self._merge(mapping, merged, depth)
                    continue
                key, written = self._key(event, depth)
            if key in mapping:
                self._check_spelling(mapping, key, written, event)
                if key in merged:
                    merged.remove(key)
                elif self._duplicate is None:
                    problem = f"the key {key:.60} is already set above in the same mapping"
                    self._duplicate = event_error(problem, event, DUPLICATE_CURE)
            if written is not key:
                self._spelling(mapping)[key] = written
            event = get()
            if depth == 1 and key == "items" and _is_plain_sequence(event):
                self._item_lines = []
                mapping[key] = self._sequence(depth + 1, self._item_lines)
            else:
                mapping[key] = self._value(event, depth)
        return mapping

    def _is_merge(self, event: Any) -> bool:
        """Return whether a key merges mappings, as go-yaml decides it."""
        if type(event) is not ScalarEvent or event.value != "<<":
            return False
        is_merge = event.tag == MERGE_TAG or bool(event.implicit[0])
        if is_merge and event.anchor is not None:
            self._anchors[event.anchor] = event.value
        return is_merge

    def _key(self, event: Any, depth: int) -> tuple[str, Scalar]:
        """Return a mapping's key as JSON has it, and the value that it is in YAML."""
        value = self._value(event, depth)
        key = key_text(value) if not isinstance(value, dict | list) else None
        if key is None:
            error = event_error("a mapping's key must be a string", event, "Put the key in quotes")
            error.for_kubectl = True
            raise error
        return key, key if isinstance(value, str) else value

    def _spelling(self, mapping: dict[str, Any]) -> dict[str, Scalar]:
        """Return the keys of a mapping that are no strings in YAML, by the key in JSON."""
        return self._spellings.setdefault(id(mapping), (mapping, {}))[1]

    def _check_spelling(
        self, mapping: dict[str, Any], key: str, written: Scalar, event: Any
    ) -> None:
        """Reject one key of JSON that is two keys of YAML: ``true`` and ``"true"``.

        Source: ``convertToJSONableObject`` keeps the value that a map of Go yields last.
        """
        _, others = self._spellings.get(id(mapping), (None, {}))
        other = others.get(key, key)
        if type(other) is not type(written) or other != written:
            raise event_error(
                f"the key {key:.60} is already set above in another notation",
                event,
                "Remove one of the two: kubectl uses either of them",
            )

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
            if self._spellings:
                self._merge_spelling(mapping, source, event)
            mapping.update(source)
            merged.update(source)

    def _merge_spelling(self, mapping: dict[str, Any], source: dict[str, Any], event: Any) -> None:
        _, others = self._spellings.get(id(source), (None, {}))
        for key in source:
            if key in mapping:
                self._check_spelling(mapping, key, others.get(key, key), event)
        if others:
            self._spelling(mapping).update(others)


def _is_plain_sequence(event: Any) -> bool:
    return type(event) is SequenceStartEvent and event.anchor is None and event.tag is None


def _syntax_error(error: yaml.YAMLError, text: str) -> DocumentError:
    """Return the error of the parser with line, column and what to do."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return _not_printable(text) or DocumentError(f"does not parse as YAML: {error}")
    mark, problem = error.problem_mark, error.problem or ""
    cure = next((cure for start, cure in _CURES.items() if problem.startswith(start)), "")
    if problem.startswith("found character"):
        cure = _stray_character(text, mark.line, mark.column)
    if looks_like_template(text):
        cure = HELM_CURE
    if error.context:
        problem = f"{problem}, {error.context}"
        if error.context_mark is not None and error.context_mark.line < mark.line:
            lines = mark.line - error.context_mark.line
            problem += f" that starts {counted(lines, 'line')} above"
    message = f"does not parse as YAML: {problem}"
    located = DocumentError(message, line=mark.line + 1, column=mark.column + 1, cure=cure)
    _clamp_to_text(located, text)
    return located


def _clamp_to_text(error: DocumentError, text: str) -> None:
    """Move an error that points below the text to the last line.

    The parser counts one more line after the end of the text.
    """
    last = len(_LINE_BREAK.findall(text)) + 1
    if error.line > last:
        error.line, error.column = last, 0


def _not_printable(text: str) -> DocumentError | None:
    """Return the error for the first character that YAML does not accept, if any."""
    match = re.search(_NOT_PRINTABLE, text)
    if match is None:
        return None
    before = text[: match.start()]
    # UTF-16 has a null byte for each ASCII character.
    is_utf16 = text.count("\0") > len(text) // 4
    return DocumentError(
        f"has the character U+{ord(match[0]):04X}, which YAML does not accept",
        line=before.count("\n") + 1,
        column=len(before) - before.rfind("\n"),
        cure="It looks like UTF-16: save it as UTF-8"
        if is_utf16
        else "Remove it, or write it as an escape in double quotes",
    )


def _stray_character(text: str, line: int, column: int) -> str:
    # Lines as the parser counts them.
    lines = _LINE_BREAK.split(text)
    character = lines[line][column : column + 1] if line < len(lines) else ""
    if character == "\t":
        return _NO_TABS
    return f"Put the value in quotes: it cannot start with {character}" if character else ""
