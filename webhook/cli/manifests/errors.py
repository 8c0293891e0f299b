"""What is wrong with a manifest before any rule has looked at it."""

from __future__ import annotations


class ManifestError(Exception):
    """A text that is no manifest.

    ``problem`` is a clause, ``cure`` a sentence without its full stop, or empty. ``line`` and
    ``column`` count from 1 within the text that was read; 0 where there is no telling.
    """

    def __init__(self, problem: str, *, line: int = 0, column: int = 0, cure: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line
        self.column = column
        self.cure = cure
