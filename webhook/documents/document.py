"""A document, and errors in it, which occur before any rule runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from webhook.wording import printable

HELM_CURE = (
    "It looks like a Helm template: check what it renders to, helm template CHART | "
    "gpufence check -"
)


@dataclass(eq=False)
class DocumentError(Exception):
    """An invalid document.

    ``problem`` is a clause, ``cure`` a sentence without its period, or empty. ``line`` and
    ``column`` count from 1 within the text; 0 if unknown. ``for_kubectl`` means that kubectl cannot
    read the document either, so that it creates nothing.
    """

    problem: str
    line: int = field(default=0, kw_only=True)
    column: int = field(default=0, kw_only=True)
    cure: str = field(default="", kw_only=True)
    for_kubectl: bool = field(default=False, kw_only=True)


class InputError(Exception):
    """Invalid input. Each line says what is wrong, where, and what to do."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


def looks_like_template(text: str) -> bool:
    """Return whether a text that does not parse may be a template of a manifest."""
    return any(mark in text for mark in ("{{", "{%", "%{"))


class Document(msgspec.Struct, eq=False):
    """One document of a file, or what is wrong with it.

    ``index`` counts from 0 as YAML does: every ``---`` starts a document, even an empty one. Text
    before the first ``---`` is a document unless it holds only comments. For JSON, ``index`` counts
    the values. ``text`` is the part of the file with the document; it starts at line
    ``text_line``. Lines count from 1, within the file. ``item_lines`` are those of the root's
    ``items``. ``duplicate`` is about the first key that is set twice in one mapping: the last value
    counts, as for kubectl. A ``lenient`` document may be a template or a patch: it is in a
    directory of manifests. ``positions`` are those that ``locate`` has found.
    """

    line: int
    text: str
    text_line: int = 1
    value: Any = None
    path: str = ""
    index: int = 0
    item_lines: list[int] = []
    error: DocumentError | None = None
    duplicate: DocumentError | None = None
    lenient: bool = False
    positions: dict[Any, Any] = {}

    @property
    def fault(self) -> DocumentError | None:
        """What is wrong, for documents in which a duplicate key is an error as well."""
        return self.error or self.duplicate

    def move_down(self, lines: int) -> None:
        """Add the lines above the part of the file in which the document is read."""
        self.line += lines
        self.text_line += lines
        self.item_lines = [line + lines for line in self.item_lines]
        for fault in (self.error, self.duplicate):
            if fault is not None and fault.line:
                fault.line += lines


def raise_errors(errors: Iterable[tuple[Document, DocumentError | None]]) -> None:
    """Raise one exception for all errors, if there are any.

    Raises:
        InputError: with a line for each error.
    """
    lines = [printable(sentence(document, error)) for document, error in errors if error]
    if lines:
        raise InputError(lines)


def sentence(document: Document, error: DocumentError) -> str:
    """Return the error as one line: place, document, problem, and what to do."""
    return f"{place(document, error)}: {explanation(document, error)}"


def place(document: Document, error: DocumentError) -> str:
    """Return the place of the error, in the form that editors and terminals recognize."""
    line = error.line or (document.line if document.text else 0)
    numbers = (line, error.column) if error.line else (line,)
    return ":".join([document.path, *(str(number) for number in numbers if number)])


def explanation(document: Document, error: DocumentError) -> str:
    """Return the error without its place. Documents count from 1."""
    number = f"document {document.index + 1}: " if document.text else ""
    cure = f" {error.cure}." if error.cure else ""
    end = "" if error.problem.endswith("?") else "."
    return f"{number}{error.problem}{end}{cure}"


def unreadable(path: str, error: DocumentError) -> Document:
    """Return a document for a file without text."""
    return Document(error.line or 1, "", path=path, error=error)
