"""``--output``: which reports a command writes, in which formats, and to which files."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from policies.suggestions import did_you_mean
from webhook.cli.report.output import FORMATS, STDOUT, TEXT, Command, Output
from webhook.documents.files import display_name

F = TypeVar("F", bound=Callable[..., Any])

_STDOUT_DEVICES = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


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
        "a file, which keeps its content until the report is complete. Repeatable; only one report "
        "can go to standard output.  [default: text]",
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


def reject_overwriting_inputs(
    outputs: Iterable[Output],
    inputs: Iterable[str | Path | None],
    cure: str = "Name another file for the report",
) -> None:
    """Reject a report that would overwrite a file that the command reads.

    Raises:
        click.UsageError: a report and an input are the same file.
    """
    reports = {_identity(output.path): output for output in outputs if output.path != STDOUT}
    reports.pop(None, None)
    for path in inputs if reports else ():
        if path is not None and (output := reports.get(_identity(path))):
            raise click.UsageError(
                f"--output {output.format}={output.path} overwrites the input "
                f"{display_name(str(path))}. {cure}."
            )


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


def _identity(path: str | Path) -> tuple[int, int] | None:
    """Return the device and inode of a regular file; ``None`` for anything else."""
    try:
        status = Path("/dev/stdin" if path == "-" else path).stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None
