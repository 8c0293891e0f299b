"""Words for people at a terminal: counts, and text that is safe to print."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

# Characters that move the cursor, change the direction of writing or are invisible: a reader must
# see what a name really is. These are control characters, line breaks among them, and Unicode's
# format characters (category Cf), except those that belong to one script or notation.
ACTING = (
    "\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f"
)
"""These characters, in a class of a regular expression, without the line feed."""

_CONTROL = re.compile(f"[\n{ACTING}]")

MOST_NAMED = 3
"""The names of a sentence."""


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 node``, ``1,200 nodes``."""
    return f"{count:,} {noun}{'s' if count != 1 else ''}"


def some(names: Sequence[str], count: int = 0, most: int = MOST_NAMED) -> str:
    """Return the first names, and how many more there are; ``count`` if ``names`` lacks some."""
    rest = max(count, len(names)) - most
    shown = ", ".join(names[:most])
    return f"{shown} and {rest:,} more" if rest > 0 else shown


def printable(text: str) -> str:
    """Return the text with each character that could act on a terminal written as an escape."""
    if text.isprintable():  # True for nearly all text, and faster than a search.
        return text
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def printable_json(text: str) -> str:
    """Return JSON with the same characters as escapes of JSON: parsed, it has the same values."""
    return re.sub(f"[{ACTING}]", lambda match: json.dumps(match[0])[1:-1], text)
