"""``--output``: which reports are written, in which formats and where to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TextIO

import click

from webhook.cli.errors import InputError
from webhook.cli.report.formats import FORMATS, TEXT, report

if TYPE_CHECKING:
    from webhook.cli.evaluate import Result
    from webhook.cli.report.lines import Line
    from webhook.cli.report.terminal import Color

STDOUT = "-"


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
    return Output(name, path or STDOUT)


def _outputs(
    _ctx: click.Context, _param: click.Parameter, given: Sequence[str]
) -> Sequence[Output]:
    """Return the reports that are asked for; no two of them may go to one place."""
    outputs = [_output(text) for text in given or [TEXT]]
    places = [output.path for output in outputs]
    for path in places:
        if places.count(path) > 1:
            where = "standard output" if path == STDOUT else path
            names = " and ".join(output.format for output in outputs if output.path == path)
            raise click.BadParameter(
                f"{names} would both go to {where}; write {outputs[0].format}=FILE"
            )
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
    help=f"The report's format: {', '.join(FORMATS)}. With =FILE it goes to a file. May be given "
    "several times, once without a file.  [default: text]",
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


@contextmanager
def opened(outputs: Iterable[Output]) -> Iterator[Write]:
    """Open every file that a report goes to, and provide what writes the reports.

    The files are opened before anything is checked, so that nobody waits for a report that has no
    place.

    Raises:
        InputError: a file cannot be written.
    """
    with ExitStack() as stack:
        streams = [
            (
                output.format,
                stack.enter_context(_open(output.path)) if output.path != STDOUT else None,
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


def _open(path: str) -> TextIO:
    try:
        return Path(path).open("w", encoding="utf-8", newline="\n")
    except FileNotFoundError as error:
        folder = Path(path).parent
        raise InputError([f"{path}: there is no folder {folder}. Create it first."]) from error
    except IsADirectoryError as error:
        raise InputError([f"{path}: is a folder. Name a file in it."]) from error
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error})"
        raise InputError([f"{path}: {problem}. Name a file that can."]) from error
