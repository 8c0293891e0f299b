"""Errors in documents, which occur before any rule runs, and templates, which cause many."""

from __future__ import annotations

from collections.abc import Iterable

HELM_CURE = (
    "It looks like a Helm template: check what it renders to, helm template CHART | "
    "gpufence check -"
)


class ManifestError(Exception):
    """An invalid manifest.

    ``problem`` is a clause, ``cure`` a sentence without its period, or empty. ``line`` and
    ``column`` count from 1 within the text; 0 if unknown.
    """

    def __init__(self, problem: str, *, line: int = 0, column: int = 0, cure: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line
        self.column = column
        self.cure = cure


class InputError(Exception):
    """Invalid input. Each line says what is wrong, where, and what to do."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


def looks_like_template(text: str) -> bool:
    """Return whether a text that does not parse may be a template of a manifest."""
    return "{{" in text or "{%" in text
