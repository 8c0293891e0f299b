"""The output of the demo: chapters, commands, and what they print."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

Result = subprocess.CompletedProcess[str]


class StoryError(Exception):
    """A command of the demo had an unexpected result."""


class Screen:
    """Shows commands and runs them. Colors on a terminal, plain text elsewhere.

    With ``step``, each chapter waits for Enter.
    """

    def __init__(self, directory: Path, environ: Mapping[str, str], *, step: bool = False) -> None:
        self._directory = directory
        self._step = step
        colors = {"FORCE_COLOR": "1"} if sys.stdout.isatty() else {}
        self._environ = {**environ, **colors}

    def chapter(self, title: str) -> None:
        if self._step:
            input(click.style("\nPress Enter to continue.", dim=True))
        click.secho(f"\n== {title}", fg="cyan", bold=True)

    def say(self, text: str) -> None:
        click.echo(text)

    def good(self, text: str) -> None:
        click.echo(f"{click.style('ok:', fg='green')} {text}")

    def bad(self, text: str) -> None:
        click.echo(f"{click.style('failed:', fg='red', bold=True)} {text}")

    def command(self, *arguments: str) -> None:
        """Show a command as typed."""
        click.secho(f"$ {shlex.join(arguments)}", bold=True)

    def run(self, *arguments: str, check: bool = True, lines: int = 0) -> Result:
        """Show a command, run it, show what it prints: the first ``lines``, or all lines for 0.

        Raises:
            StoryError: it failed, unless `check` is False.
        """
        self.command(*arguments)
        result = self.quiet(*arguments)
        printed = (result.stdout + result.stderr).rstrip().splitlines()
        shown = printed[:lines] if lines else printed
        for line in shown:
            click.echo(f"  {line}")
        if more := len(printed) - len(shown):
            click.secho(f"  ... and {more} more lines", dim=True)
        if check and result.returncode:
            raise StoryError(f"{shlex.join(arguments)} ended with exit code {result.returncode}")
        return result

    def quiet(self, *arguments: str) -> Result:
        """Run a command without showing anything."""
        return subprocess.run(
            arguments,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            cwd=self._directory,
            env=self._environ,
            stdin=subprocess.DEVNULL,
        )


def expect(condition: object, claim: str) -> None:
    """Raise a StoryError if a condition does not hold.

    This is not an assert statement, because python -O removes those.
    """
    if not condition:
        raise StoryError(claim)


def names(words: Iterable[str]) -> str:
    return ", ".join(sorted(words))
