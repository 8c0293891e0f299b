"""Errors that end a command, and exit statuses."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import click

EXIT_FOUND = 1
EXIT_INPUT = 2


class InputError(click.ClickException):
    """Invalid input. Each line says what is wrong, where, and what to do."""

    exit_code = EXIT_INPUT

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))

    def show(self, file: IO[Any] | None = None) -> None:
        for line in self.lines:
            click.echo(f"Error: {line}", file=file, err=file is None)


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
