"""Words for people: lists, and suggestions for mistyped words."""

from __future__ import annotations

from collections.abc import Iterable


def listing(items: Iterable[str], last: str = "and") -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    *head, tail = items
    return f"{', '.join(head)} {last} {tail}" if head else tail


def quote(items: Iterable[str], last: str = "and") -> str:
    """Return ``"a"``, ``"a" and "b"`` or ``"a", "b" and "c"``."""
    return listing([f'"{item}"' for item in items], last)


def capitalized(text: str) -> str:
    """Return the text with a capital letter at its start."""
    return text[:1].upper() + text[1:]


def uncapitalized(text: str) -> str:
    """Return the text with a small letter at its start."""
    return text[:1].lower() + text[1:]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question with the known words that are most like ``word``, or nothing."""
    from difflib import get_close_matches

    by_lower = {name.lower(): name for name in known}
    near = get_close_matches(word.lower(), list(by_lower), n=3, cutoff=0.6)
    return f"Did you mean {' or '.join(by_lower[name] for name in near)}?" if near else ""


def unknown(what: str, word: object, known: Iterable[str]) -> str:
    """Return a clause about an unknown word: a suggestion, and the accepted words."""
    known = list(known)
    accepted = ", ".join(known)
    if near := did_you_mean(str(word), known):
        return f"unknown {what}; {uncapitalized(near)} Accepted: {accepted}"
    return f"unknown {what}; accepted: {accepted}"
