"""The objects that paths stand for: in files, directories, patterns, and Helm charts.

A chart is rendered with the helm of the machine.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path, PurePath
from typing import NamedTuple

from policies.kubernetes.objects import mapping
from webhook.tools.documents.document import Document, DocumentError, InputError, unreadable
from webhook.tools.documents.files import (
    STDIN,
    cannot_be_read,
    display_name,
    load_documents,
    read_documents,
    text_of,
)
from webhook.tools.documents.objects import Manifest, read_objects

SUFFIXES = (".yaml", ".yml", ".json")
_PATTERN_MARKS = "*?["

CHART = "Chart.yaml"
_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_PATCH_FIELDS = ("patches", "patchesStrategicMerge", "patchesJson6902")
PATCH_NOTE = "is a patch of a kustomization; check what kustomize build prints"
_HELM_SECONDS = 60


class ExcludedPaths:
    """Patterns of files and directories; an excluded directory is skipped with all its content.

    A pattern without a slash matches names at any depth: ``charts``, ``*.tmpl.yaml``. A pattern
    with a slash matches paths relative to the searched directory: ``overlays/*/dev``. ``**`` stands
    for any number of directories. ``*``, ``?`` and ``[...]`` match characters of one name.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [_parts(pattern) for pattern in patterns]

    def __contains__(self, path: str) -> bool:
        """Return whether ``path``, relative to the searched directory, is excluded."""
        parts = PurePath(path).parts
        return any(
            _match(parts[:length], pattern)
            for pattern in self._patterns
            for length in range(1, len(parts) + 1)
        )


NOTHING = ExcludedPaths(())


class Source(NamedTuple):
    """A file to read, or a Helm chart to render; ``error`` says why there is nothing to read."""

    path: str
    error: DocumentError | None = None
    in_directory: bool = False
    is_chart: bool = False
    is_patch: bool = False


def read_manifests(paths: Iterable[str], exclude: ExcludedPaths = NOTHING) -> list[Manifest]:
    """Return every object of the files, directories and standard input that ``paths`` name."""
    return list(read_sources(expand(paths, exclude)))


def read_sources(sources: Iterable[Source], *, lenient: bool = False) -> Iterator[Manifest]:
    """Yield every object, in order; if ``lenient``, templates and patches in directories as notes.

    A source that cannot be read counts as one object, with the error.
    """
    for source in sources:
        path = display_name(source.path)
        try:
            name = f"<helm template {path}>" if source.is_chart else path
            documents = list(read_documents(name, _text(source)))
        except DocumentError as problem:
            documents = [unreadable(path, problem)]
        for document in documents:
            document.lenient = lenient and source.in_directory
            if source.is_patch:
                yield Manifest(document, None, (), document.line, note=PATCH_NOTE)
            else:
                yield from read_objects(document)


def _text(source: Source) -> str:
    """Return the text of a source.

    Raises:
        DocumentError: it cannot be read, or the chart cannot be rendered.
    """
    if source.error is not None:
        raise source.error
    return render_chart(source.path) if source.is_chart else text_of(source.path)


def no_objects_message(paths: Iterable[str], cure: str = "Check the tool that wrote them") -> str:
    """Return the message for paths that hold no objects, which is not a success."""
    return f"no objects in {', '.join(map(display_name, paths))}. {cure}."


def expand(paths: Iterable[str], exclude: ExcludedPaths = NOTHING) -> list[Source]:
    """Return what ``paths`` mean, each file once.

    A directory stands for the regular files below it that end in ``.yaml``, ``.yml`` or ``.json``,
    sorted, without hidden directories and without what is excluded. A directory with a Chart.yaml
    is a Helm chart, and is rendered. A path that does not exist and has ``*``, ``?`` or ``[`` in it
    is a pattern of such files and directories (``**`` for any number of directories).
    """
    sources: dict[str, Source] = {}
    for path in paths:
        for source in _sources(path, exclude):
            sources.setdefault(source.path, source)
    return list(sources.values())


def _sources(path: str, exclude: ExcludedPaths) -> list[Source]:
    suffixes = ", ".join(SUFFIXES)
    if path == STDIN:
        return [Source(path)]
    if is_directory(path):
        found = list(_walk(path, path, exclude))
        problem = f"is a directory without manifests ({suffixes})"
        cure = "Name the directory or the files that hold them"
    elif any(mark in path for mark in _PATTERN_MARKS) and not os.path.lexists(path):
        found = list(_matching(path, exclude))
        problem, cure = f"matches no manifests ({suffixes})", "Check the pattern"
    else:
        return [Source(path)]
    return found or [Source(path, DocumentError(problem, cure=cure))]


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


def _matching(pattern: str, exclude: ExcludedPaths) -> Iterator[Source]:
    parts = PurePath(pattern).parts
    fixed = next(n for n, part in enumerate(parts) if any(mark in part for mark in _PATTERN_MARKS))
    root = Path(*parts[:fixed])
    try:
        matches = sorted(root.glob("/".join(parts[fixed:])), key=lambda path: path.parts)
    except ValueError as error:
        problem, cure = f"is not a valid pattern ({error})", "Use ** as a whole path segment"
        yield Source(pattern, DocumentError(problem, cure=cure))
        return
    for path in matches:
        below = path.relative_to(root)
        if str(below) in exclude or any(part.startswith(".") for part in below.parts):
            continue
        file = str(path)
        if is_directory(file):
            yield from _walk(file, str(root), exclude)
        elif path.name.endswith(SUFFIXES) and not is_special_file(file):
            yield Source(file)


def _walk(directory: str, root: str, exclude: ExcludedPaths) -> Iterator[Source]:
    """Yield the manifests and charts below a directory, sorted.

    Patterns of ``exclude`` are relative to ``root``.
    """
    sources: list[Source] = []
    errors: list[OSError] = []
    patches: set[str] = set()
    for parent, directories, files in os.walk(str(PurePath(directory)), onerror=errors.append):
        below = os.path.relpath(parent, root)
        patches.update(_patches(parent, files))
        directories[:] = _kept(directories, below, exclude)
        files = _kept(files, below, exclude)
        if CHART in files:
            directories.clear()
            path = parent.removeprefix("./")
            sources.append(Source(path, in_directory=True, is_chart=True))
            continue
        sources += [
            Source(f"{parent.rstrip('/')}/{name}".removeprefix("./"), in_directory=True)
            for name in files
            if name.endswith(SUFFIXES)
        ]
    for error in errors:
        yield Source(str(error.filename), cannot_be_read(error))
    # Directory by directory: a/z before a-b/x.
    for source in sorted(sources, key=lambda source: source.path.split("/")):
        if source.is_chart or not is_special_file(source.path):
            yield source._replace(is_patch=os.path.normpath(source.path) in patches)


def _kept(names: Iterable[str], below: str, exclude: ExcludedPaths) -> list[str]:
    """Return the names in a directory that are neither hidden nor excluded."""
    visible = (name for name in names if not name.startswith("."))
    return [name for name in visible if f"{below}/{name}" not in exclude]


def _patches(directory: str, files: Sequence[str]) -> Iterator[str]:
    """Yield the paths of the patches that the kustomization of a directory names."""
    documents: list[Document] = []
    for name in set(files).intersection(_KUSTOMIZATIONS):
        with suppress(InputError):  # the reader of the file reports it
            documents += load_documents(f"{directory}/{name}")
    for document in documents:
        fields = mapping(document.value)
        for entry in chain.from_iterable(fields.get(field) or () for field in _PATCH_FIELDS):
            patch = entry.get("path") if isinstance(entry, dict) else entry
            if isinstance(patch, str) and "\n" not in patch:
                yield os.path.normpath(f"{directory}/{patch}")


def render_chart(chart: str) -> str:
    """Return what ``helm template`` makes of a chart and its default values.

    Raises:
        DocumentError: helm is not installed, or cannot render the chart.
    """
    command = f"helm template {shlex.quote(chart)}"
    helm = shutil.which("helm")
    if helm is None:
        raise DocumentError(
            "is a Helm chart, and helm is not in PATH",
            cure=f"Where helm is installed, run {command} | gpufence check -",
        )
    try:
        completed = subprocess.run(  # noqa: S603 - a list of arguments, no shell
            [helm, "template", "--", chart],
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_HELM_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DocumentError(f"cannot be rendered ({error})", cure=f"Run {command}") from error
    if completed.returncode:
        output = " ".join(completed.stderr.split()) or f"exit status {completed.returncode}"
        raise DocumentError(
            f"cannot be rendered with its default values: {output.removeprefix('Error: ')}",
            cure=f"Run {command} with your values, and pipe it into gpufence check -",
        )
    return completed.stdout


def _parts(pattern: str) -> tuple[str, ...]:
    pattern = pattern.removeprefix("./").rstrip("/")
    at_any_depth = () if "/" in pattern else ("**",)
    return (*at_any_depth, *pattern.lstrip("/").split("/"))


def _match(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_match(parts[start:], pattern[1:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _match(parts[1:], pattern[1:])
