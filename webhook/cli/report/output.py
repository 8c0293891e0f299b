"""Where reports go: each in its format to its file, or to standard output."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO

from webhook.cli.errors import unwritable
from webhook.cli.report import terminal
from webhook.cli.report.content import CheckReport, DoctorReport, SuitesReport
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


@contextmanager
def report_writer(
    command: Command, outputs: Iterable[Output], color: terminal.Color
) -> Iterator[Callable[[CheckReport | DoctorReport | SuitesReport], None]]:
    """Open the file of every report, and provide a function that writes the reports.

    The files are opened before anything is checked, so that a file that cannot be written is an
    error at once. Each keeps its content until its report is complete.

    Raises:
        InputError: a file cannot be written.
    """
    with ExitStack() as stack:
        files = [
            None if output.path == STDOUT else stack.enter_context(written(output.path))
            for output in outputs
        ]

        def write(report: CheckReport | DoctorReport | SuitesReport) -> None:
            for output, file in zip(outputs, files, strict=True):
                pieces = formatted(command, output.format, report)
                if output.format == TEXT:
                    terminal.write(pieces, file or sys.stdout, color)
                elif file is not None:
                    file.writelines(pieces)
                else:
                    for piece in pieces:
                        sys.stdout.buffer.write(piece.encode())
                    sys.stdout.flush()

        yield write


def formatted(
    command: Command, name: str, report: CheckReport | DoctorReport | SuitesReport
) -> Iterator[Any]:
    """Return the pieces of a report; ``text`` returns lines. Only this format is imported."""
    module = import_module(f"{__package__}.{name}")
    pieces: Iterator[Any] = getattr(module, command)(report)
    return pieces


@contextmanager
def written(path: str) -> Iterator[TextIO]:
    """Provide a file that replaces the one at ``path`` once it is complete.

    A device, a pipe, or a file that cannot be replaced is written in place. Nothing of it is lost
    before the first byte is written.

    Raises:
        InputError: it cannot be written.
    """
    # A link stays, and its target is replaced.
    place = Path(os.path.realpath(path))
    try:
        file = _temporary(Path(path), place) or _itself(path)
    except OSError as error:
        raise unwritable(printable(path), error) from error
    if isinstance(file.name, int):
        with file:
            yield file
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                file.truncate()
        return
    beside = Path(file.name)
    try:
        with file:
            yield file
        _replace(place, beside)
    finally:
        beside.unlink(missing_ok=True)


def _temporary(path: Path, place: Path) -> TextIO | None:
    """Open a new file that can replace the one at ``place``; None if that is not possible.

    Raises:
        OSError: the file at ``path`` cannot be examined.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        status = None
    if status is not None:
        is_ours = status.st_uid == os.geteuid() and status.st_nlink == 1
        if not (stat.S_ISREG(status.st_mode) and is_ours and os.access(path, os.W_OK)):
            return None
    # /dev/stderr may be a file that other processes write to.
    if path.absolute().is_relative_to("/dev"):
        return None
    beside = place.with_name(f".{place.name:.50}.{os.getpid()}.tmp")
    try:
        file = beside.open("x", encoding="utf-8", newline="\n")
    except OSError:  # writing in place reports it, if that fails as well
        return None
    if status is not None:
        beside.chmod(stat.S_IMODE(status.st_mode))
    return file


def _itself(path: str) -> TextIO:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    # open() with a path would truncate the file at once.
    return open(descriptor, "w", encoding="utf-8", newline="\n")  # noqa: PTH123 - no path


def _replace(place: Path, beside: Path) -> None:
    try:
        beside.replace(place)
    except OSError:
        # A file that is a mount point cannot be replaced.
        place.write_bytes(beside.read_bytes())
