"""What a terminal shows: lines, colored and wrapped, and a progress bar. Plain text elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TextIO, TypeVar

from webhook.cli.report.text import Line, Role

Color = Literal["auto", "always", "never"]
T = TypeVar("T")

MANY = 100
"""The number of items that take a while."""


_STYLES: dict[Role, str] = {
    "": "none",
    "allowed": "green",
    "mutated": "cyan",
    "denied": "bold red",
    "unknown": "yellow",
    "skipped": "dim",
    "invalid": "bold magenta",
    "enforce": "red",
    "warn": "yellow",
    "audit": "blue",
    "rule": "bold",
    "object": "bold",
    "place": "dim",
    "remediation": "green",
    "added": "green",
    "removed": "red",
    "aside": "dim",
    "total": "bold",
}
# Wide enough that nothing wraps: people search output that is not on a terminal.
_UNLIMITED = 1_000_000
_NARROWEST = 20


def resolve_color(color: Color, stream: TextIO) -> Color:
    """Apply NO_COLOR (no-color.org) and FORCE_COLOR (force-color.org), which change ``auto``.

    NO_COLOR wins. FORCE_COLOR is for standard output, not for the files of reports.
    """
    if color == "auto" and os.environ.get("NO_COLOR"):
        return "never"
    if color == "auto" and os.environ.get("FORCE_COLOR") and stream is sys.stdout:
        return "always"
    return color


def write(lines: Iterable[Line], stream: TextIO, color: Color) -> None:
    """Write a report."""
    color = resolve_color(color, stream)
    is_terminal = stream.isatty()
    if not is_terminal and color != "always":
        stream.writelines(f"{line.text}\n" for line in lines)
        return

    from rich.color import ColorSystem
    from rich.console import Console
    from rich.style import Style
    from rich.text import Text

    console = Console(file=stream, width=None if is_terminal else _UNLIMITED)
    system = None if color == "never" or console.is_dumb_terminal else ColorSystem.STANDARD
    styles = {role: Style.parse(style) for role, style in _STYLES.items()}

    def render(text: Text) -> str:
        segments = text.render(console)
        return "".join((s.style or Style()).render(s.text, color_system=system) for s in segments)

    for line in lines:
        if not line.wraps or len(line.text) <= console.width:
            spans = [styles[role].render(text, color_system=system) for text, role in line.spans]
            stream.write(f"{' ' * line.indent}{''.join(spans)}\n")
            continue
        text = Text.assemble(*((text, styles[role]) for text, role in line.spans), end="")
        for part in text.wrap(console, max(_NARROWEST, console.width - line.indent)):
            part.rstrip()
            stream.write(f"{' ' * line.indent}{render(part)}\n")


def watched(items: Sequence[T], what: str, *, enabled: bool) -> Iterable[T]:
    """Return the items of a sequence; a long one shows a progress bar on a terminal."""
    if not enabled or len(items) < MANY or sys.stderr is None or not sys.stderr.isatty():
        return items
    from rich.console import Console
    from rich.progress import track

    # The bar disappears before the report.
    return track(items, what, console=Console(stderr=True), transient=True)


@contextmanager
def reading(*, enabled: bool) -> Iterator[Callable[[str, int], None]]:
    """Provide a function that shows on a terminal how many objects of a collection are read."""
    if not enabled or sys.stderr is None or not sys.stderr.isatty():
        yield lambda _title, _count: None
        return
    from rich.console import Console

    # The line disappears before the report.
    with Console(stderr=True).status("Reading") as status:
        yield lambda title, count: status.update(f"Reading {title}: {count:,}")
