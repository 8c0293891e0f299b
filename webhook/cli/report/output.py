"""Where reports go: each in its format to its file, or to standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Literal, NamedTuple, TextIO

from webhook.cli.errors import unwritable
from webhook.cli.report import terminal
from webhook.cli.report.content import CheckReport, DoctorReport, SuitesReport
from webhook.cli.report.text import Line
from webhook.wording import printable

Command = Literal["check", "audit", "doctor", "suites"]

TEXT = "text"
STDOUT = "-"

FORMATS: dict[Command, tuple[str, ...]] = {
    "check": (TEXT, "github", "html", "json", "junit", "markdown", "sarif"),
    "audit": (TEXT, "html", "json", "junit", "markdown"),
    "doctor": (TEXT, "json"),
    "suites": (TEXT, "json", "junit"),
}
"""The formats of each command. The module of a format has a function with the command's name."""


class Output(NamedTuple):
    """A report to write; ``path`` is ``-`` for standard output."""

    format: str
    path: str = STDOUT


Report = CheckReport | DoctorReport | SuitesReport


def check_writable(outputs: Iterable[Output]) -> None:
    """Find out that a report cannot be written before anything is checked.

    Raises:
        InputError: a file cannot be written.
    """
    for output in outputs:
        if output.path == STDOUT:
            continue
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


def write_reports(
    command: Command, report: Report, outputs: Iterable[Output], color: terminal.Color
) -> None:
    """Write a report in each of its formats. A file keeps its content until its report is made."""
    for output in outputs:
        made = formatted(command, output.format, report)
        if output.path == STDOUT:
            _write(made, sys.stdout, color)
            continue
        with Path(output.path).open("w", encoding="utf-8", newline="\n") as file:
            _write(made, file, color)


def formatted(command: Command, name: str, report: Report) -> str | list[Line]:
    """Return a report in a format; ``text`` has lines. Only this format is imported."""
    made = getattr(import_module(f"{__package__}.{name}"), command)(report)
    return made if isinstance(made, str) else list(made)


def _write(made: str | list[Line], stream: TextIO, color: terminal.Color) -> None:
    if not isinstance(made, str):
        terminal.write(made, stream, color)
    elif stream is sys.stdout:
        # In UTF-8, whatever the encoding of the terminal is.
        sys.stdout.buffer.write(made.encode())
        sys.stdout.flush()
    else:
        stream.write(made)
