"""``--output``: reports, their formats and files, and what a terminal shows."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO, TypeAlias, TypeVar

import click

from policies.wording import did_you_mean
from webhook.documents.document import InputError
from webhook.documents.files import display_name
from webhook.tools.cli.report.content import CheckReport, SuitesReport
from webhook.tools.cli.yaml_writer import Marked
from webhook.wording import printable

if TYPE_CHECKING:
    from webhook.tools.cli.policy_diff.comparison import Comparison
    from webhook.tools.doctor import DoctorLine

F = TypeVar("F", bound=Callable[..., Any])

Command = Literal["check", "audit", "doctor", "suites", "diff"]

TEXT = "text"
STDOUT = "-"
_LOGGED_EVERY = 10.0
_STDOUT_DEVICES = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")

FORMATS: dict[Command, tuple[str, ...]] = {
    "check": (TEXT, "github", "json", "junit", "sarif"),
    "audit": (TEXT, "html", "json"),
    "doctor": (TEXT, "json"),
    "suites": (TEXT, "json", "junit"),
    "diff": (TEXT, "json", "markdown"),
}
"""The formats of each command. The module of a format has a function with the command's name."""


class Output(NamedTuple):
    """A report to write; ``path`` is ``-`` for standard output."""

    format: str
    path: str = STDOUT


Report: TypeAlias = "CheckReport | SuitesReport | Sequence[DoctorLine] | Comparison"
"""The content of a report, by command."""


def output_option(command: Command) -> Callable[[F], F]:
    """Return the option with the formats of a command's report, as the argument ``outputs``."""
    names = FORMATS[command]

    def parse(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> list[Output]:
        outputs = [_output(text, names) for text in values or [TEXT]]
        _check_places(outputs)
        return outputs

    return click.option(
        "--output",
        "-o",
        "outputs",
        multiple=True,
        callback=parse,
        metavar="FORMAT[=FILE]",
        help=f"Format of the report: {', '.join(names)}. With =FILE, gpufence writes the report to "
        "FILE, and replaces it only when the report is complete. Repeatable; only one report can "
        "go to standard output.  [default: text]",
    )


def real_path(path: str) -> str:
    """Return the path of the file itself, whatever links and dots lead to it."""
    return path if path == STDOUT else os.path.realpath(path)


def _output(text: str, names: Sequence[str]) -> Output:
    """Parse ``sarif`` or ``sarif=report.sarif``."""
    name, equals, path = text.partition("=")
    if name not in names:
        near = did_you_mean(name, names) or f"Formats: {', '.join(names)}."
        raise click.BadParameter(f"{name!r} is not a format of this report. {near}")
    if equals and not path:
        raise click.BadParameter(f"{text!r} names no file. Write {name}=FILE.")
    return Output(name, STDOUT if path in ("", *_STDOUT_DEVICES) else path)


def _check_places(outputs: Sequence[Output]) -> None:
    """Reject two reports that go to the same place."""
    by_place: dict[str, list[Output]] = {}
    for output in outputs:
        by_place.setdefault(real_path(output.path), []).append(output)
    for place, same in by_place.items():
        if len(same) > 1:
            names = " and ".join(output.format for output in same)
            where = "standard output" if place == STDOUT else same[0].path
            cure = f"Write {same[0].format}=FILE" if place == STDOUT else "Name two files"
            raise click.BadParameter(f"{names} both go to {where}. {cure}.")


def check_outputs(
    outputs: Iterable[Output],
    inputs: Iterable[str | Path | None],
    cure: str = "Name another file for the report",
) -> None:
    """Reject, before anything is checked, a report that cannot be written or overwrites an input.

    Raises:
        click.UsageError: a report and a file that the command reads are the same.
        InputError: a file cannot be written.
    """
    reports = {real_path(output.path): output for output in outputs if output.path != STDOUT}
    for path in map(str, filter(None, inputs)):
        if output := reports.get(real_path(path)):
            raise click.UsageError(
                f"--output {output.format}={output.path} overwrites the input "
                f"{display_name(path)}. {cure}."
            )
    for output in reports.values():
        place = Path(output.path)
        try:
            existed = place.exists()
            if existed and not (place.is_file() or place.is_dir()):
                continue  # To open a pipe would wait for its reader.
            place.open("a").close()
            if not existed:
                place.resolve().unlink()  # A link stays.
        except OSError as error:
            raise unwritable(printable(output.path), error) from error


def unwritable(path: str, error: OSError) -> InputError:
    """Return the error of a file that cannot be opened for writing."""
    match error:
        case FileNotFoundError():
            problem = f"directory {Path(path).parent} does not exist. Create it"
        case IsADirectoryError():
            problem = "is a directory. Name a file in it"
        case _:
            problem = f"cannot be written ({error.strerror or error}). Name another file"
    return InputError([f"{path}: {problem}."])


def write_file(path: str | Path, content: bytes) -> None:
    """Write a file; raises InputError."""
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise unwritable(printable(str(path)), error) from error


def write_reports(command: Command, report: Report, outputs: Sequence[Output]) -> None:
    """Write a report in each of its formats. A file keeps its content until the report is made."""
    for output in outputs:
        # Only the module of this format is imported.
        make = getattr(import_module(f"{__package__}.{output.format}"), command)
        stream = sys.stdout if output.path == STDOUT else None
        own = (report, terminal_of(stream)) if output.format == TEXT else (report,)
        if stream is not None and output.format == TEXT:
            stream.write("".join(make(*own)))
        else:
            # Encoded one by one: the pieces of a large page take ten times the memory of its text.
            # In UTF-8, whatever the encoding of the terminal is.
            made = BytesIO()
            made.writelines(piece.encode() for piece in make(*own))
            if stream is None:
                write_file(output.path, made.getvalue())
            else:
                stream.buffer.write(made.getvalue())
        sys.stdout.flush()


# Terminals.


Style = dict[str, Any]

PLAIN: Style = {}
BOLD: Style = {"bold": True}
DIM: Style = {"dim": True}
RED: Style = {"fg": "red"}
GREEN: Style = {"fg": "green"}
YELLOW: Style = {"fg": "yellow"}
STYLES: dict[str, Style] = {
    "invalid": {"fg": "magenta"} | BOLD,
    "denied": RED | BOLD,
    "unknown": YELLOW,
    "mutated": {"fg": "cyan"},
    "allowed": GREEN,
    "skipped": DIM,
    "enforce": RED,
    "warn": YELLOW,
    "audit": {"fg": "blue"},
    "off": PLAIN,
}
"""The styles of verdicts, the most severe first, and of actions."""

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


def terminal_of(stream: TextIO | None) -> Terminal:
    """Return how text looks in a stream, or in a file.

    NO_COLOR (no-color.org) wins over FORCE_COLOR (force-color.org), which is for standard output,
    not for the files of reports.
    """
    is_terminal = stream is not None and stream.isatty()
    is_colored = is_terminal and os.environ.get("TERM") != "dumb"
    if os.environ.get("NO_COLOR"):
        is_colored = False
    elif os.environ.get("FORCE_COLOR") and stream is not None:
        is_colored = True
    return Terminal(is_colored, shutil.get_terminal_size().columns if is_terminal else 0)


@contextmanager
def reading(*, enabled: bool) -> Iterator[Callable[[str, int], None]]:
    """Provide a function that shows how many objects of a collection are read.

    On a terminal that is one line, which disappears before the report. Elsewhere, for example in
    the log of a Job, it is a line every ten seconds.
    """
    if not enabled or sys.stderr is None:
        yield lambda _title, _count: None
        return
    is_terminal = sys.stderr.isatty()
    due = time.monotonic() + _LOGGED_EVERY

    def show(title: str, count: int) -> None:
        nonlocal due
        text = f"Reading {title}: {count:,}"
        if is_terminal:
            click.echo(f"\r\x1b[K{text}", err=True, nl=False)
        elif time.monotonic() >= due:
            due = time.monotonic() + _LOGGED_EVERY
            click.echo(text, err=True)

    try:
        yield show
    finally:
        if is_terminal:
            click.echo("\r\x1b[K", err=True, nl=False)
