"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; cells are Markdown, and may hold line feeds and bars."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def entry(text: str, *facts: str) -> str:
    """Return a cell with a sentence, and further facts below it in small print."""
    known = "; ".join(fact for fact in facts if fact)
    return "<br>".join(part for part in (text, f"<small>{known}</small>" if known else "") if part)


def code(value: str) -> str:
    """Return the value as code, or nothing for an empty value."""
    return f"`{value}`" if value else ""


def plain(text: str) -> str:
    """Return plain text as Markdown that reads the same."""
    return text.translate({ord(character): f"\\{character}" for character in r"\`*_[]<>"})


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
