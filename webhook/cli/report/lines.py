"""Lines of a report: text in spans, each with what it stands for, but not with how that looks."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

Role = Literal[
    "",
    "allowed",
    "mutated",
    "denied",
    "skipped",
    "invalid",
    "enforce",
    "warn",
    "audit",
    "rule",
    "object",
    "place",
    "advice",
    "added",
    "removed",
    "aside",
    "total",
]

Span = tuple[str, Role]

# What moves the cursor, turns the direction of writing or is not seen at all: a name in a manifest
# must show whoever reads the report what it is. Control characters, line ends among them, and
# Unicode's format characters (category Cf), but for those that only one script or notation uses.
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)


class Line(msgspec.Struct, frozen=True):
    """A line of a report; one that wraps goes on below its own start, ``indent`` columns in."""

    spans: tuple[Span, ...] = ()
    indent: int = 0
    wraps: bool = True

    @property
    def text(self) -> str:
        return " " * self.indent + "".join([text for text, _ in self.spans])


def clean(text: str) -> str:
    """Return text from a manifest, with what could act on a terminal written as an escape."""
    if text.isprintable():  # as nearly all is, and to ask is faster than to search
        return text
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)
