"""What the demo shows: chapters, commands as they are typed, and what they print."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.console import Console
from rich.markup import escape

Result = subprocess.CompletedProcess[str]


class StoryError(Exception):
    """Something did not come out as told."""


class Screen:
    """Runs commands in the open. Colours where the output is a terminal, plain text elsewhere."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._folder = folder
        self._environ = environ

    def chapter(self, title: str) -> None:
        self._console.print(f"\n[bold cyan]== {escape(title)}[/]")

    def say(self, text: str) -> None:
        self._console.print(escape(text))

    def good(self, text: str) -> None:
        self._console.print(f"[green]ok:[/] {escape(text)}")

    def bad(self, text: str) -> None:
        self._console.print(f"[bold red]not as told:[/] {escape(text)}")

    def command(self, *arguments: str) -> None:
        """Show a command as one would type it."""
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

    def save(self, file: Path, *arguments: str) -> None:
        """Show a command whose output goes into a file, and run it.

        Raises:
            StoryError: it failed.
        """
        shown = f"{shlex.join(arguments)} > {shlex.quote(str(file))}"
        self._console.print(f"[bold]$ {escape(shown)}[/]")
        result = self.quiet(*arguments)
        if result.returncode:
            raise StoryError(f"{shown} ended with exit code {result.returncode}: {result.stderr}")
        file.write_text(result.stdout)

    def quiet(self, *arguments: str) -> Result:
        """Run a command without showing anything."""
        return subprocess.run(
            arguments,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            cwd=self._folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
        )


def expect(condition: object, told: str) -> None:
    """Raise a StoryError that says what was told and is not so.

    Not an assert statement: those vanish under python -O, and with them the demo's point.
    """
    if not condition:
        raise StoryError(told)


def names(words: Iterable[str]) -> str:
    return ", ".join(sorted(words))
