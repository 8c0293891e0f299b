"""``--output``: the reports that a command writes, their formats, and the files they go to."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

import click
from msgspec.structs import replace

from policies.suggestions import did_you_mean
from webhook.cli.evaluate import Result
from webhook.cli.report.content import (
    CheckReport,
    SuitesReport,
)
from webhook.cli.report.terminal import Color, Terminal, terminal_of
from webhook.documents.document import InputError
from webhook.documents.files import display_name, temporary_file
from webhook.wording import printable

if TYPE_CHECKING:
    from webhook.doctor.line import DoctorLine

F = TypeVar("F", bound=Callable[..., Any])

Command = Literal["check", "audit", "doctor", "suites"]

TEXT = "text"
STDOUT = "-"
_STDOUT_DEVICES = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")

FORMATS: dict[Command, tuple[str, ...]] = {
    "check": (TEXT, "github", "gitlab", "html", "json", "junit", "markdown", "sarif"),
    "audit": (TEXT, "csv", "html", "json", "junit", "markdown"),
    "doctor": (TEXT, "json", "junit"),
    "suites": (TEXT, "json", "junit"),
}
"""The formats of each command. The module of a format has a function with the command's name."""


class Output(NamedTuple):
    """A report to write; ``path`` is ``-`` for standard output."""

    format: str
    path: str = STDOUT


Report: TypeAlias = "CheckReport | SuitesReport | Sequence[DoctorLine]"
"""The content of a report, by command."""


def output_option(command: Command) -> Callable[[F], F]:
    """Return the option with the formats of a command's report, as the argument ``outputs``."""
    names = FORMATS[command]

    def parse(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> list[Output]:
        outputs = [_output(text, names) for text in values or [TEXT]]
        _check_places(outputs)
        return outputs

    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return click.option(
        "--output",
        "-o",
        "outputs",
        multiple=True,
        callback=parse,
        shell_complete=complete,
        metavar="FORMAT[=FILE]",
        help=f"Format of the report: {', '.join(names)}. With =FILE, gpufence writes the report to "
        "FILE, and replaces it only when the report is complete. Repeatable; only one report can "
        "go to standard output.  [default: text]",
    )


color_option = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Whether to color text. auto colors it on a terminal. The environment variables NO_COLOR "
    "and FORCE_COLOR change what auto does.",
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


def write_reports(
    command: Command, report: Report, outputs: Sequence[Output], color: Color
) -> None:
    """Write a report in each of its formats. A file keeps its content until the report is made.

    The formats of a check advance together, object by object, so that no result has to stay.
    """
    reports: list[Report] = [report] * len(outputs)
    if command == "check" and isinstance(report, CheckReport):
        copies = _copies(iter(report.results), len(outputs))
        reports = [replace(report, results=copy) for copy in copies]
    with ExitStack() as stack:
        writes: list[Callable[[str], object]] = []
        made: list[Iterator[str]] = []
        for output, own in zip(outputs, reports, strict=True):
            # Only the module of this format is imported.
            make = getattr(import_module(f"{__package__}.{output.format}"), command)
            write, terminal = stack.enter_context(_target(output, color))
            writes.append(write)
            made.append(make(own, terminal) if output.format == TEXT else make(own))
        for texts in zip_longest(*made, fillvalue=""):
            for write, text in zip(writes, texts, strict=True):
                write(text)


@contextmanager
def _target(output: Output, color: Color) -> Iterator[tuple[Callable[[str], object], Terminal]]:
    """Provide the function that writes a report, and how its text looks."""
    if output.path != STDOUT:
        with io.TextIOWrapper(temporary_file(), "utf-8", newline="\n") as stream:
            yield stream.write, terminal_of(stream, color)
            stream.seek(0)
            with Path(output.path).open("w", encoding="utf-8", newline="\n") as file:
                shutil.copyfileobj(stream, file)
    elif output.format == TEXT:
        yield sys.stdout.write, terminal_of(sys.stdout, color)
        sys.stdout.flush()
    else:
        # In UTF-8, whatever the encoding of the terminal is.
        yield lambda text: sys.stdout.buffer.write(text.encode()), Terminal()
        sys.stdout.flush()


def _copies(results: Iterator[Result], count: int) -> list[Iterator[Result]]:
    """Return iterators over the same results. (``itertools.tee`` keeps 57 of them.)"""
    queues: list[deque[Result]] = [deque() for _ in range(count)]

    def copy(own: deque[Result]) -> Iterator[Result]:
        while True:
            if not own:
                for result in islice(results, 1):
                    for queue in queues:
                        queue.append(result)
            if not own:
                return
            yield own.popleft()

    return [copy(queue) for queue in queues]
