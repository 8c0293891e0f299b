"""The output of the demo: chapters, commands, and what they print."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

Result = subprocess.CompletedProcess[str]


class StoryError(Exception):
    """A command of the demo had an unexpected result."""


class Screen:
    """Shows commands and runs them. Colors and wrapped words on a terminal, plain text elsewhere.

    With ``step``, each chapter waits for Enter.
    """

    def __init__(self, directory: Path, environ: Mapping[str, str], *, step: bool = False) -> None:
        self._console = Console(highlight=False)
        self._directory = directory
        self._step = step
        colors = {"FORCE_COLOR": "1"} if self._console.is_terminal else {}
        self._environ = {**environ, **colors}

    def chapter(self, title: str) -> None:
        if self._step:
            self._console.input("\n[dim]Press Enter to continue.[/]")
        self._print(Text(f"\n== {title}", "bold cyan"))

    def say(self, text: str) -> None:
        self._print(Text(text))

    def good(self, text: str) -> None:
        self._print(Text.assemble(("ok: ", "green"), text))

    def bad(self, text: str) -> None:
        self._print(Text.assemble(("failed: ", "bold red"), text))

    def command(self, *arguments: str) -> None:
        """Show a command as typed."""
        self._print(Text(f"$ {shlex.join(arguments)}", "bold"))

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
            self._print(Text("  ").append_text(Text.from_ansi(line)))
        if more := len(printed) - len(shown):
            self._print(Text(f"  ... and {more} more lines", "dim"))
        if check and result.returncode:
            raise StoryError(f"{shlex.join(arguments)} ended with exit code {result.returncode}")
        return result

    def _print(self, text: Text) -> None:
        """Print text; a terminal gets lines that are wrapped between words."""
        self._console.print(text, soft_wrap=not self._console.is_terminal)

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
