"""The places of findings and objects, for the formats that lead a reader there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from policies.finding import Finding
from webhook.cli.manifests.evaluate import Result
from webhook.documents.fields import locate


class Place(NamedTuple):
    """A place in a file. Numbers count from 1; 0 if unknown.

    ``end`` is the column after the field, on the same line.
    """

    path: str
    line: int = 0
    column: int = 0
    end: int = 0


def finding_place(result: Result, finding: Finding) -> Place:
    """Return the place of the finding's field, or of its nearest parent."""
    manifest = result.manifest
    position = locate(manifest.document, manifest.path, finding.path)
    if position is None:
        return object_place(result)
    return Place(manifest.document.path, *position)


def object_place(result: Result) -> Place:
    """Return the place of an object, or of its error."""
    document = result.manifest.document
    if result.error is not None and result.error.line:
        return Place(document.path, result.error.line, result.error.column)
    return Place(document.path, result.manifest.line if document.text else 0)


def is_virtual(path: str) -> bool:
    """Return whether a path stands for standard input or for a rendered chart."""
    return path.startswith("<") and path.endswith(">")


def repository_path(path: str) -> str | None:
    """Return a file's path as code hosts know it: relative to the working directory.

    A run in CI starts in the repository's root. A file outside of it keeps its absolute path.
    ``None`` for standard input and for rendered charts, which are no files.
    """
    if is_virtual(path):
        return None
    relative = os.path.relpath(path)
    inside = relative.partition("/")[0] != os.pardir
    return relative if inside else str(Path(path).absolute())
