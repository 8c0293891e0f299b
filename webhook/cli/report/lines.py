"""Lines of a report: text in spans, each with what it stands for, but not with how that looks."""

from __future__ import annotations

from typing import Literal

import msgspec

Role = Literal[
    "",
    "allowed",
    "mutated",
    "denied",
    "unknown",
    "skipped",
    "invalid",
    "enforce",
    "warn",
    "audit",
    "rule",
    "object",
    "place",
    "remediation",
    "added",
    "removed",
    "aside",
    "total",
]

Span = tuple[str, Role]


class Line(msgspec.Struct, frozen=True):
    """A line of a report; one that wraps goes on below its own start, ``indent`` columns in."""

    spans: tuple[Span, ...] = ()
    indent: int = 0
    wraps: bool = True

    @property
    def text(self) -> str:
        return " " * self.indent + "".join([text for text, _ in self.spans])
