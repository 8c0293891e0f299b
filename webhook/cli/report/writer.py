"""Writes the reports of one run: each in its format, to its file or to standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from webhook.cli.report.formats import TEXT, Command, load_format
from webhook.cli.report.output_file import written

if TYPE_CHECKING:
    from webhook.cli.report.content import Content
    from webhook.cli.report.terminal import Color

STDOUT = "-"


class Output(NamedTuple):
    """A report to write; ``path`` is ``-`` for standard output."""

    format: str
    path: str = STDOUT


@contextmanager
def report_writer(
    command: Command, outputs: Iterable[Output], color: Color
) -> Iterator[Callable[[Content], None]]:
    """Open the file of every report, and provide a function that writes the reports.

    The files are opened before anything is checked, so that a file that cannot be written is an
    error at once. Each keeps its content until its report is complete.

    Raises:
        InputError: a file cannot be written.
    """
    with ExitStack() as stack:
        reports = [
            (
                output.format,
                stack.enter_context(written(output.path)) if output.path != STDOUT else None,
            )
            for output in outputs
        ]

        def write(content: Content) -> None:
            for name, file in reports:
                pieces = load_format(command, name).report(content)
                if name == TEXT:
                    from webhook.cli.report import terminal

                    terminal.write(pieces, file or sys.stdout, color)
                elif file is not None:
                    file.writelines(pieces)
                else:
                    for piece in pieces:
                        sys.stdout.buffer.write(piece.encode())
                    sys.stdout.flush()

        yield write
