"""``--output``: which reports are written, in which formats and where to."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import click

from webhook.cli.report.formats import FORMATS, TEXT, report
from webhook.cli.report.output_file import written

if TYPE_CHECKING:
    from webhook.cli.manifests.evaluate import Result
    from webhook.cli.report.lines import Line
    from webhook.cli.report.terminal import Color

STDOUT = "-"

_STDOUT_DEVICES = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def place_of(path: str) -> str:
    """Return the path of the file itself, whatever links and dots lead to it."""
    return path if path == STDOUT else os.path.realpath(path)


class Output(NamedTuple):
    """A report that is asked for; ``path`` is ``-`` for the standard output."""

    format: str
    path: str = STDOUT


def _output(text: str) -> Output:
    """Return what ``sarif`` or ``sarif=report.sarif`` asks for."""
    name, equals, path = text.partition("=")
    if name not in FORMATS:
        raise click.BadParameter(f"{name!r} is no format; the formats are {', '.join(FORMATS)}")
    if equals and not path:
        raise click.BadParameter(f"{text!r} names no file; write {name}=FILE")
    return Output(name, STDOUT if path in ("", *_STDOUT_DEVICES) else path)


def _outputs(
    _ctx: click.Context, _param: click.Parameter, given: Sequence[str]
) -> Sequence[Output]:
    """Return the reports that are asked for; no two of them may go to one place."""
    outputs = [_output(text) for text in given or [TEXT]]
    places = [place_of(output.path) for output in outputs]
    for place in places:
        if places.count(place) > 1:
            there = [output for output in outputs if place_of(output.path) == place]
            names = " and ".join(output.format for output in there)
            if place == STDOUT:
                where, cure = "standard output", f"write {outputs[0].format}=FILE"
            else:
                where, cure = there[0].path, "give each a file of its own"
            raise click.BadParameter(f"{names} would both go to {where}; {cure}")
    return outputs


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in FORMATS if name.startswith(incomplete)]


output_option = click.option(
    "--output",
    "-o",
    "outputs",
    multiple=True,
    callback=_outputs,
    shell_complete=_complete,
    metavar="FORMAT[=FILE]",
    help=f"The report's format: {', '.join(FORMATS)}. With =FILE it goes to a file, "
    "which stays as it was until the report is complete. May be given several times, once without "
    "a file.  [default: text]",
)

color_option = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colour in the text; auto means on a terminal, unless NO_COLOR is set.",
)


def _lines(results: Iterable[Result], quiet: bool) -> Iterable[Line]:
    from webhook.cli.report import text

    return text.report(results, quiet=quiet)


class Forms(NamedTuple):
    """What makes reports of results: lines for people, and pieces of text in the other formats."""

    lines: Callable[[Iterable[Result], bool], Iterable[Line]] = _lines
    report: Callable[[str, Iterable[Result]], Iterable[str]] = report


_CHECK = Forms()


class Write(Protocol):
    """Writes every report that is asked for."""

    def __call__(
        self, results: Iterable[Result], color: Color, quiet: bool, forms: Forms = _CHECK
    ) -> None: ...


def keep_inputs(
    outputs: Iterable[Output],
    inputs: Iterable[str | Path | None],
    cure: str = "name another file for the report",
) -> None:
    """Refuse to write a report over a file that is read.

    Raises:
        click.UsageError: that is asked for.
    """
    reports = {_identity(output.path): output for output in outputs if output.path != STDOUT}
    reports.pop(None, None)
    for path in inputs if reports else ():
        if path is not None and (output := reports.get(_identity(path))):
            from webhook.cli.manifests.files import display_name

            raise click.UsageError(
                f"--output {output.format}={output.path} would be written over "
                f"{display_name(str(path))}, which is read: {cure}"
            )


def _identity(path: str | Path) -> tuple[int, int] | None:
    """Return what no two files share, however they are called; ``None`` for what is no file."""
    try:
        found = Path("/dev/stdin" if path == "-" else path).stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


@contextmanager
def opened(outputs: Iterable[Output]) -> Iterator[Write]:
    """Open every file that a report goes to, and provide what writes the reports.

    The files are opened before anything is checked, so that nobody waits for a report that has no
    place. What is in them stays until then.

    Raises:
        InputError: a file cannot be written.
    """
    with ExitStack() as stack:
        streams = [
            (
                output.format,
                stack.enter_context(written(output.path)) if output.path != STDOUT else None,
            )
            for output in outputs
        ]

        def write(
            results: Iterable[Result], color: Color, quiet: bool, forms: Forms = _CHECK
        ) -> None:
            # Of one report nobody has to hold the results; for several they are gone through again.
            kept = results if len(streams) == 1 else list(results)
            for name, stream in streams:
                if name == TEXT:
                    from webhook.cli.report import terminal

                    terminal.write(forms.lines(kept, quiet), stream or sys.stdout, color)
                elif stream is None:
                    for piece in forms.report(name, kept):
                        sys.stdout.buffer.write(piece.encode())
                    sys.stdout.flush()
                else:
                    stream.writelines(forms.report(name, kept))

        yield write
