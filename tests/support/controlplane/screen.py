"""The output of the demo: chapters, commands, and what they print."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.console import Console
from rich.markup import escape

Result = subprocess.CompletedProcess[str]


class StoryError(Exception):
    """A command of the demo had an unexpected result."""


class Screen:
    """Shows commands and runs them. Colors on a terminal, plain text elsewhere."""

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._directory = directory
        self._environ = environ

    def chapter(self, title: str) -> None:
        self._console.print(f"\n[bold cyan]== {escape(title)}[/]")

    def say(self, text: str) -> None:
        self._console.print(escape(text))

    def good(self, text: str) -> None:
        self._console.print(f"[green]ok:[/] {escape(text)}")

    def bad(self, text: str) -> None:
        self._console.print(f"[bold red]failed:[/] {escape(text)}")

    def command(self, *arguments: str) -> None:
        """Show a command as typed."""
        self._console.print(f"[bold]$ {escape(shlex.join(arguments))}[/]")

    def run(self, *arguments: str, check: bool = True) -> Result:
        """Show a command, run it, show what it prints.

        Raises:
            StoryError: it failed, unless `check` is False.
        """
        self.command(*arguments)
        result = self.quiet(*arguments)
        for line in (result.stdout + result.stderr).splitlines():
            self._console.print(f"  {escape(line)}")
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
