"""What a terminal shows: colors, wrapped lines, and the progress of a long run. Plain elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TextIO, TypeVar

import click

from webhook.cli.report.difference import Marked
from webhook.wording import printable

Color = Literal["auto", "always", "never"]
Style = dict[str, Any]
T = TypeVar("T")

MANY = 100
"""The number of items that take a while."""

PLAIN: Style = {}
BOLD: Style = {"bold": True}
DIM: Style = {"dim": True}
RED: Style = {"fg": "red"}
GREEN: Style = {"fg": "green"}
YELLOW: Style = {"fg": "yellow"}
STYLES: dict[str, Style] = {
    "allowed": GREEN,
    "mutated": {"fg": "cyan"},
    "denied": RED | BOLD,
    "unknown": YELLOW,
    "skipped": DIM,
    "invalid": {"fg": "magenta"} | BOLD,
    "enforce": RED,
    "warn": YELLOW,
    "audit": {"fg": "blue"},
    "off": PLAIN,
}
"""The styles of verdicts and actions."""

_MARKS: dict[str, Style] = {" ": PLAIN, "+": GREEN, "-": RED, "@": DIM}
_NARROWEST = 20


class Terminal(NamedTuple):
    """How the lines of a text look. ``columns`` is 0 where nothing wraps, as in a file."""

    is_colored: bool = False
    columns: int = 0

    def paint(self, text: str, style: Style) -> str:
        """Return a text in a style, with control characters written as escapes."""
        text = printable(text)
        return click.style(text, **style) if self.is_colored and style and text else text

    def line(self, text: str, indent: int = 0, style: Style = PLAIN, label: str = "") -> str:
        """Return a paragraph. On a terminal, each of its lines has the indent.

        A ``label`` is in green before the text.
        """
        text = printable(label + text)
        width = max(_NARROWEST, self.columns - indent)
        parts = textwrap.wrap(text, width, break_on_hyphens=False) if self.columns else [text]
        first, *others = parts or [""]
        shown = self.paint(label, GREEN) + self.paint(first.removeprefix(label), style)
        return "".join(
            f"{' ' * indent}{part}\n" for part in (shown, *(self.paint(o, style) for o in others))
        )

    def row(self, *cells: tuple[str, Style], indent: int = 0) -> str:
        """Return a line of cells with two blanks between them. It does not wrap."""
        return f"{' ' * indent}{'  '.join(self.paint(*cell) for cell in cells)}\n"

    def changed(self, lines: Iterable[Marked], indent: int) -> str:
        """Return the lines of a difference."""
        return "".join(
            f"{' ' * indent}{self.paint('@@' if mark == '@' else f'{mark}{text}', _MARKS[mark])}\n"
            for mark, text in lines
        )


def terminal_of(stream: TextIO, color: Color) -> Terminal:
    """Return how text looks in a stream.

    NO_COLOR (no-color.org) and FORCE_COLOR (force-color.org) change ``auto``. NO_COLOR wins.
    FORCE_COLOR is for standard output, not for the files of reports.
    """
    is_terminal = stream.isatty()
    is_colored = is_terminal and os.environ.get("TERM") != "dumb"
    if color == "auto" and os.environ.get("NO_COLOR"):
        is_colored = False
    elif color == "auto" and os.environ.get("FORCE_COLOR") and stream is sys.stdout:
        is_colored = True
    elif color != "auto":
        is_colored = color == "always"
    return Terminal(is_colored, shutil.get_terminal_size().columns if is_terminal else 0)


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
