"""JSON: one value, or several in a row (JSON lines among them), with the line of each.

The reader follows kubectl, but reports duplicate keys, and rejects halves of surrogate pairs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn

from policies.kubernetes.objects import is_too_deep
from policies.wording import uncapitalized
from webhook.documents.document import HELM_CURE, Document, DocumentError, looks_like_template
from webhook.documents.scalars import INT64_MIN, UINT64_MAX
from webhook.documents.yaml_reader import DUPLICATE_CURE, TOO_DEEP, TOO_DEEP_CURE, read_yaml

_SPACE = re.compile(r"[ \t\r\n]*")
_GAP = re.compile(rf"{_SPACE.pattern}[:,]?{_SPACE.pattern}")
COMMENT = re.compile(r"\s*(//|/\*)")
COMMENT_CURE = "JSON has no comments: remove them, or write YAML"
_LINE_WITH_BRACKET = re.compile(r"^[{\[]", re.MULTILINE)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_QUOTE = "Put it in quotes if it is meant as text"
# The messages of json, with the usual cause; the last entry is for all other messages.
_CURES = {
    "Expecting ',' delimiter": "Look for a missing comma, or a bracket that is not closed",
    "Expecting ':' delimiter": "Look for a missing colon",
    "Expecting property name": "Put the key in double quotes, or look for a comma too many",
    "Illegal trailing comma": "Remove the comma",
    "Expecting value": "Put text in double quotes, or look for a comma too many",
    "Unterminated string": "Look for a quote that is not closed",
    "Invalid control character": r"Write it as an escape: \n for a line break, \t for a tab",
    "Invalid \\": r"Write a backslash as \\\\",
    "": "Check the tool that wrote it",
}
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_json(text: str) -> Iterator[Document]:
    """Yield the values that ``text`` holds in a row.

    A broken value comes with its error. Reading continues at the next line that starts with a
    bracket.
    """
    duplicates: list[str] = []

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            keys = [key for key, _ in pairs]
            duplicates.append(next(key for key in keys if keys.count(key) > 1))
        return value

    decoder = json.JSONDecoder(
        object_pairs_hook=mapping, parse_int=_integer, parse_float=_float, parse_constant=_constant
    )
    counted, line_above = 0, 1

    def line_of(offset: int) -> int:
        """Return the line of an offset, which is not before that of the last call."""
        nonlocal counted, line_above
        line_above += text.count("\n", counted, offset)
        counted = offset
        return line_above

    at = _skip(text, 0)
    while at < len(text):
        duplicates.clear()
        try:
            value, end = _decode(decoder, text, at)
        except DocumentError as error:
            yield Document(line_of(at), text, error=error)
            following = _LINE_WITH_BRACKET.search(text, at + 1)
            at = following.start() if following else len(text)
            continue
        line = line_of(at)
        document = Document(line, text[at:end], line, value)
        if duplicates:
            document.duplicate = _duplicate(text, at, end, duplicates[0])
        elif isinstance(value, dict) and isinstance(value.get("items"), list):
            document.item_lines = list(map(line_of, _item_starts(decoder, text, at)))
        yield document
        at = _skip(text, end)


def _decode(decoder: json.JSONDecoder, text: str, at: int) -> tuple[Any, int]:
    try:
        value, end = decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        problem = f"does not parse as JSON: {uncapitalized(error.msg)}"
        raise DocumentError(
            problem, line=error.lineno, column=error.colno, cure=_cure(error, text)
        ) from error
    except RecursionError:
        raise DocumentError(TOO_DEEP, cure=TOO_DEEP_CURE) from None
    if is_too_deep(value):
        raise DocumentError(TOO_DEEP, cure=TOO_DEEP_CURE)
    if _SURROGATE_ESCAPE.search(text, at, end) and _SURROGATE.search(
        json.dumps(value, ensure_ascii=False)
    ):
        raise DocumentError(
            r"has half of a surrogate pair (\ud800 to \udfff), which is not text",
            cure="Write the character itself",
        )
    return value, end


def _cure(error: json.JSONDecodeError, text: str) -> str:
    if looks_like_template(text):
        return HELM_CURE
    if COMMENT.match(text, error.pos):
        return COMMENT_CURE
    return next(cure for start, cure in _CURES.items() if error.msg.startswith(start))


def _integer(digits: str) -> int | float:
    """Follow the API server: an integer that does not fit 64 bits is a float."""
    if len(digits) < 19:
        return int(digits)
    if len(digits) < 21 and INT64_MIN <= (value := int(digits)) <= UINT64_MAX:
        return value
    return _float(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise DocumentError(f"the number {digits:.40} is too large", cure=_QUOTE)
    return value


def _constant(name: str) -> NoReturn:
    raise DocumentError(f"{name} is a number that JSON does not have", cure=_QUOTE)


def _duplicate(text: str, at: int, end: int, key: str) -> DocumentError:
    """Return the error with its line: JSON is YAML, and the YAML reader knows the place."""
    problem = f"the key {key:.60} is set twice in the same object"
    error = DocumentError(problem, cure=DUPLICATE_CURE)
    with suppress(DocumentError):
        document = read_yaml(text[at:end])
        if document is not None and document.duplicate is not None:
            error.line = text.count("\n", 0, at) + document.duplicate.line
            error.column = document.duplicate.column
    return error


def _item_starts(decoder: json.JSONDecoder, text: str, at: int) -> Iterator[int]:
    """Yield the position of each of the root's ``items``; ``text`` parses from ``at``."""
    key, at = decoder.raw_decode(text, _skip(text, at + 1))
    while key != "items":
        _, at = decoder.raw_decode(text, _skip(text, at, _GAP))
        key, at = decoder.raw_decode(text, _skip(text, at, _GAP))
    at = _skip(text, _skip(text, at, _GAP) + 1)
    while text[at] != "]":
        yield at
        _, at = decoder.raw_decode(text, at)
        at = _skip(text, at, _GAP)


def _skip(text: str, at: int, skipped: re.Pattern[str] = _SPACE) -> int:
    match = skipped.match(text, at)
    return match.end() if match else at
