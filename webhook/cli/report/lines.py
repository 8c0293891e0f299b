"""Lines of a report: text in spans, each with its role. The terminal decides how roles look."""

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
    """A line of a report. A line that wraps continues at its own ``indent``."""

    spans: tuple[Span, ...] = ()
    indent: int = 0
    wraps: bool = True

    @property
    def text(self) -> str:
        return " " * self.indent + "".join([text for text, _ in self.spans])
