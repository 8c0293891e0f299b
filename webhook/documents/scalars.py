"""The values of YAML scalars for Kubernetes, by their form or their tags.

Source: ``resolve.go`` of ``go.yaml.in/yaml/v2``, the parser behind ``sigs.k8s.io/yaml`` and so
behind kubectl and the API server. It is neither YAML 1.1 nor 1.2: ``y`` and ``on`` are true,
``0o17`` and ``017`` are 15, ``1e3`` is a number, ``12:30:00`` and ``2026-01-31`` are strings.
"""

from __future__ import annotations

import math
import re
import struct
from functools import lru_cache
from typing import Any

import yaml

from webhook.documents.document import DocumentError

Scalar = str | int | float | bool | None

MAY_BE_SPECIAL = frozenset("+-.0123456789~yYnNtTfFoO")
"""A scalar that does not start with one of these, and is not empty, is a string."""

_INFINITY = math.inf
_CONSTANTS: dict[str, Scalar] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES"), True),
    **dict.fromkeys(("true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO"), False),
    **dict.fromkeys(("false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), _INFINITY),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -_INFINITY),
}
_NOT_FINITE = {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}
_INTEGER = re.compile(
    r"(?P<sign>[+-]?)(?:0[xX](?P<hexadecimal>[0-9a-fA-F]+)|0[oO]?(?P<octal>[0-7]+)"
    r"|0[bB](?P<binary>[01]+)|(?P<decimal>0|[1-9][0-9]*))",
    re.ASCII,
)
_BASES = {"hexadecimal": 16, "octal": 8, "binary": 2, "decimal": 10}
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
# strconv.ParseFloat, which parses these, accepts an underscore between two digits.
_UNDERSCORES = re.compile(r"(?:[^_]|(?<=[0-9])_(?=[0-9]))*", re.ASCII)
INT64_MIN = -(2**63)
UINT64_MAX = 2**64 - 1
"""Integers of Kubernetes are between the two; others are floats."""
# int() fails for 4,300 digits and more; floats end before.
_MAX_DIGITS = 4000

_TAG = "tag:yaml.org,2002:"
_NUMBER_TAGS = {f"{_TAG}int": int, f"{_TAG}float": float, f"{_TAG}bool": bool}
_TEXT_TAGS = frozenset({"!", f"{_TAG}str", f"{_TAG}timestamp"})
_NULL_TAG = f"{_TAG}null"
MERGE_TAG = f"{_TAG}merge"
_COLLECTION_TAGS = {
    yaml.MappingStartEvent: (None, "!", f"{_TAG}map"),
    yaml.SequenceStartEvent: (None, "!", f"{_TAG}seq"),
}


def resolve(event: Any) -> Scalar:
    """Return the value of a scalar that is plain or has a tag.

    Raises:
        DocumentError: the tag is unknown or does not fit the value, or JSON has no such value.
    """
    tag, text = event.tag, event.value
    if tag in _TEXT_TAGS:
        return str(text)
    value = resolve_plain(text)
    if tag in _NUMBER_TAGS or tag == _NULL_TAG:
        expected = _NUMBER_TAGS.get(tag, type(None))
        if expected is float and type(value) is int:
            value = float(value)
        if type(value) is not expected:
            raise event_error(
                f"{text:.60} is not a valid {tag.removeprefix(_TAG)}, which its tag requires",
                event,
                "Remove the tag",
            )
    elif tag is not None:
        raise _unknown_tag(event)
    if type(value) is float and not math.isfinite(value):
        raise event_error(
            f"{text} is a number that JSON does not have",
            event,
            "Put it in quotes if it is meant as text",
        )
    return value


def check_collection(event: Any) -> None:
    """Reject tags of collections that are neither mappings nor lists for Kubernetes."""
    if event.tag not in _COLLECTION_TAGS[type(event)]:
        raise _unknown_tag(event)


def _unknown_tag(event: Any) -> DocumentError:
    tag = event.tag.replace(_TAG, "!!")
    return event_error(f"the tag {tag:.60} has no meaning in Kubernetes", event, "Remove the tag")


def event_error(problem: str, event: Any, cure: str = "") -> DocumentError:
    """Return an error at the place of an event."""
    mark = event.start_mark
    return DocumentError(problem, line=mark.line + 1, column=mark.column + 1, cure=cure)


def resolve_plain(text: str) -> Scalar:
    """Return the value of a plain (unquoted) scalar: a string unless it is something else.

    Integers beyond 64 bits are floats; numbers beyond the floats are strings.
    """
    if text and text[0] not in MAY_BE_SPECIAL:
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] == ".":
        return _float(text.replace("_", ""), text) if _UNDERSCORES.fullmatch(text) else text
    if text[0] not in "+-0123456789":
        return text
    plain = text.replace("_", "")
    match = _INTEGER.fullmatch(plain)
    if match and match.lastgroup and len(plain) < _MAX_DIGITS:
        digits = match[match.lastgroup]
        value = int(f"{match['sign']}{digits}", _BASES[match.lastgroup])
        if INT64_MIN <= value <= UINT64_MAX and not (value > -INT64_MIN - 1 and match["sign"]):
            return value
    return _float(plain, text)


@lru_cache(maxsize=4096)
def plain_key(text: str) -> str | None:
    """Return a plain mapping key as JSON has it; ``None`` for an invalid key, and for ``<<``.

    Manifests repeat a few keys very often, so each is resolved once.
    """
    return None if text == "<<" else key_text(resolve_plain(text))


@lru_cache(maxsize=4096)
def bare_word(text: str) -> str | None:
    """Return a plain mapping key that is a string; ``None`` for others, and for ``<<``."""
    return text if text != "<<" and isinstance(resolve_plain(text), str) else None


def key_text(value: Scalar) -> str | None:
    """Return a mapping key as JSON has it, a string; ``None`` for an invalid key.

    Source: ``convertToJSONableObject`` in ``sigs.k8s.io/yaml/yaml.go``.
    """
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() if value < 2**63:
            return str(value)
        case float():
            return _float32_text(value)
    return None


def _float(plain: str, text: str) -> Scalar:
    if not _FLOAT.fullmatch(plain):
        return text
    value = float(plain)
    return text if math.isinf(value) else value


def _float32_text(value: float) -> str:
    """Follow Go's ``strconv.FormatFloat(value, 'g', -1, 32)``: the fewest unambiguous digits."""
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        packed = struct.pack("<f", math.copysign(_INFINITY, value))
    (single,) = struct.unpack("<f", packed)
    if not math.isfinite(single):
        return _NOT_FINITE[str(single)]
    digits = next(d for d in range(9) if struct.pack("<f", float(f"{single:.{d}e}")) == packed)
    text = f"{single:.{digits}e}"
    exponent = int(text.partition("e")[2])
    if not -5 < exponent < 6:
        return text
    return f"{single:.{max(0, digits - exponent)}f}"
