"""An error in a manifest as a sentence: where, what, and what to do."""

from __future__ import annotations

from webhook.cli.manifests.documents import Document
from webhook.cli.manifests.errors import ManifestError


def sentence(document: Document, error: ManifestError) -> str:
    """Return the error as one line: place, document, problem, and what to do."""
    return f"{place(document, error)}: {explanation(document, error)}"


def place(document: Document, error: ManifestError) -> str:
    """Return the place of the error, in the form that editors and terminals recognize."""
    line = error.line or (document.line if document.text else 0)
    numbers = (line, error.column) if error.line else (line,)
    return ":".join([document.path, *(str(number) for number in numbers if number)])


def explanation(document: Document, error: ManifestError) -> str:
    """Return the error without its place. Documents count from 1."""
    number = f"document {document.index + 1}: " if document.text else ""
    cure = f" {error.cure}." if error.cure else ""
    return f"{number}{error.problem}.{cure}"
