"""The files that paths stand for."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from typing import NamedTuple

from webhook.cli.manifests.exclusion import NOTHING, Exclusion
from webhook.documents.errors import ManifestError
from webhook.documents.files import STDIN, cannot_be_read

SUFFIXES = (".yaml", ".yml", ".json")
_PATTERN_MARKS = "*?["

CHART = "Chart.yaml"


class Source(NamedTuple):
    """A file to read, or a Helm chart to render; ``error`` says why there is nothing to read."""

    path: str
    error: ManifestError | None = None
    in_directory: bool = False
    is_chart: bool = False


def expand(paths: Iterable[str], exclude: Exclusion = NOTHING) -> Iterator[Source]:
    """Yield what ``paths`` mean, each file once.

    A directory stands for the regular files below it that end in ``.yaml``, ``.yml`` or ``.json``,
    sorted, without hidden directories and without what is excluded. A directory with a Chart.yaml
    is a Helm chart, and is rendered. A path that does not exist and has ``*``, ``?`` or ``[`` in it
    is a pattern of such files and directories (``**`` for any number of directories).
    """
    seen = set()
    for path in paths:
        for source in _files(path, exclude):
            if source.path not in seen:
                seen.add(source.path)
                yield source


def _files(path: str, exclude: Exclusion) -> Iterable[Source]:
    if path == STDIN:
        return [Source(path)]
    if is_directory(path):
        return _directory(path, exclude)
    if any(mark in path for mark in _PATTERN_MARKS) and not os.path.lexists(path):
        return _matching(path, exclude)
    return [Source(path)]


def is_directory(path: str) -> bool:
    try:
        return Path(path).is_dir()
    except OSError:  # the reader reports it
        return False


def is_special_file(path: str) -> bool:
    """Return whether the path exists and is not a regular file: reading a pipe may block."""
    try:
        return not stat.S_ISREG(Path(path).stat().st_mode)
    except OSError:  # the reader reports it
        return False


def _directory(directory: str, exclude: Exclusion) -> Iterator[Source]:
    nothing = True
    for source in _walk(directory, directory, exclude):
        nothing = False
        yield source
    if nothing:
        problem = f"is a directory without manifests ({', '.join(SUFFIXES)})"
        cure = "Name the directory or the files that hold them"
        yield Source(directory, ManifestError(problem, cure=cure))


def _matching(pattern: str, exclude: Exclusion) -> Iterator[Source]:
    parts = PurePath(pattern).parts
    fixed = next(n for n, part in enumerate(parts) if any(mark in part for mark in _PATTERN_MARKS))
    root = Path(*parts[:fixed])
    try:
        matches = sorted(root.glob("/".join(parts[fixed:])), key=lambda path: path.parts)
    except ValueError as error:
        problem, cure = f"is not a valid pattern ({error})", "Use ** as a whole path segment"
        yield Source(pattern, ManifestError(problem, cure=cure))
        return
    nothing = True
    for path in matches:
        below = path.relative_to(root)
        if str(below) in exclude or any(part.startswith(".") for part in below.parts):
            continue
        file = str(path)
        if is_directory(file):
            files = list(_walk(file, str(root), exclude))
        elif path.name.endswith(SUFFIXES) and not is_special_file(file):
            files = [Source(file)]
        else:
            files = []
        nothing = nothing and not files
        yield from files
    if nothing:
        problem = f"matches no manifests ({', '.join(SUFFIXES)})"
        yield Source(pattern, ManifestError(problem, cure="Check the pattern"))


def _walk(directory: str, root: str, exclude: Exclusion) -> Iterator[Source]:
    """Yield the manifests and charts below a directory, sorted.

    Patterns of ``exclude`` are relative to ``root``.
    """
    sources: list[Source] = []
    errors: list[OSError] = []
    for parent, directories, files in os.walk(str(PurePath(directory)), onerror=errors.append):
        below = os.path.relpath(parent, root)
        if CHART in files and f"{below}/{CHART}" not in exclude:
            directories.clear()
            path = parent.removeprefix("./")
            sources.append(Source(path, in_directory=True, is_chart=True))
            continue
        directories[:] = [
            name
            for name in directories
            if not name.startswith(".") and f"{below}/{name}" not in exclude
        ]
        sources += [
            Source(f"{parent.rstrip('/')}/{name}".removeprefix("./"), in_directory=True)
            for name in files
            if name.endswith(SUFFIXES)
            and not name.startswith(".")
            and f"{below}/{name}" not in exclude
        ]
    for error in errors:
        yield Source(str(error.filename), cannot_be_read(error))
    # Directory by directory: a/z before a-b/x.
    for source in sorted(sources, key=lambda source: source.path.split("/")):
        if source.is_chart or not is_special_file(source.path):
            yield source
