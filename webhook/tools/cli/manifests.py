"""The objects that paths stand for: in files and directories.

What stands in a directory and is not judged is a note: nothing in a pull request hides a manifest.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from policies.kubernetes.objects import JSONObject, mapping
from webhook.documents.document import Document, DocumentError, InputError, unreadable
from webhook.documents.files import (
    STDIN,
    cannot_be_read,
    display_name,
    load_documents,
    read_documents,
    text_of,
)
from webhook.documents.objects import KUSTOMIZE_KINDS, Manifest, read_objects

SUFFIXES = (".yaml", ".yml", ".json")
_GIT = ".git"

_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_PATCH_FIELDS = ("patches", "patchesStrategicMerge", "patchesJson6902")
_RESOURCE_FIELDS = ("resources", "bases", "components", "crds")
_GENERATING_FIELDS = ("generators", "helmCharts", "helmChartInflationGenerator", "transformers")
_CHART, _VALUES = "Chart.yaml", "values.yaml"
CHART_NOTE = "is a Helm chart; check what helm template prints"
HIDDEN_NOTE = "is hidden and not checked. To check it, name it as a path"
LINK_NOTE = "is a link out of the directory and not checked. To check it, name its target"
PATCH_NOTE = "is a patch of a kustomization; check what kustomize build prints"
BUILD_NOTE = "makes objects that stand in no file; check what kustomize build prints"


class Source(NamedTuple):
    """A file to read.

    ``error`` says why there is nothing to read, and ``note`` why a file is not judged.
    """

    path: str
    error: DocumentError | None = None
    in_directory: bool = False
    note: str = ""


def read_manifests(paths: Iterable[str], exclude: Sequence[str] = ()) -> list[Manifest]:
    """Return every object of the files, directories and standard input that ``paths`` name."""
    return list(read_sources(expand(paths, exclude)))


def read_file(path: str) -> list[Manifest]:
    """Return every object of one file, or of standard input."""
    return list(read_sources([Source(path)]))


def read_sources(sources: Iterable[Source], *, lenient: bool = False) -> Iterator[Manifest]:
    """Yield every object, in order; if ``lenient``, templates and patches in directories as notes.

    A source that cannot be read counts as one object, with the error.
    """
    for source in sources:
        path = display_name(source.path)
        if source.note:
            yield Manifest(Document(1, "", path=path), None, (), 1, note=source.note)
            continue
        try:
            if source.error is not None:
                raise source.error
            documents = list(read_documents(path, text_of(source.path)))
        except DocumentError as problem:
            documents = [unreadable(path, problem)]
        for document in documents:
            document.lenient = lenient and source.in_directory
            yield from read_objects(document)


def no_nodes(path: str, command: str = "kubectl get nodes -o json") -> InputError:
    """Return the error of a file without nodes; ``command`` creates such a file."""
    return InputError([f"{display_name(path)} contains no nodes. Create it with {command}."])


def no_objects_message(paths: Iterable[str], cure: str = "Check the tool that wrote them") -> str:
    """Return the message for paths that hold no objects, which is not a success."""
    return f"no objects in {', '.join(map(display_name, paths))}. {cure}."


def expand(
    paths: Iterable[str], exclude: Sequence[str] = (), *, allow_empty: bool = False
) -> list[Source]:
    """Return what ``paths`` mean, each file once.

    A directory stands for the regular files below it that end in ``.yaml``, ``.yml`` or ``.json``,
    sorted, without what is excluded. Hidden files and directories that Git tracks, charts and
    patches are notes.

    An excluded directory is skipped with all its content. A pattern of ``exclude`` without a slash
    matches names at any depth: ``charts``, ``*.tmpl.yaml``. A pattern with a slash matches paths
    relative to the searched directory: ``overlays/*/dev``. ``**`` stands for any number of
    directories. ``*``, ``?`` and ``[...]`` match characters of one name.
    """
    sources: dict[str, Source] = {}
    for path in paths:
        for source in _sources(path, exclude, allow_empty):
            sources.setdefault(source.path, source)
    return list(sources.values())


def _sources(path: str, exclude: Sequence[str], allow_empty: bool) -> list[Source]:
    if path != STDIN and is_directory(path):
        found = list(_Walk(path, exclude).sources())
        if not found and not allow_empty:
            problem = f"is a directory without manifests ({', '.join(SUFFIXES)})"
            cure = "Name the directory or the files that hold them"
            found = [Source(path, DocumentError(problem, cure=cure))]
        return found
    return [Source(path)]


is_directory = os.path.isdir
"""Return whether a path is a directory; false if that is unknown, which the reader reports."""


def is_special_file(path: str) -> bool:
    """Return whether the path exists and is not a regular file: reading a pipe may block."""
    try:
        return not stat.S_ISREG(Path(path).stat().st_mode)
    except OSError:  # the reader reports it
        return False


def _leaves(path: str, *roots: str) -> bool:
    """Return whether a path, or a link there, leads out of all these directories."""
    target = Path(os.path.realpath(path))
    return not any(target.is_relative_to(os.path.realpath(root)) for root in roots)


def is_link_elsewhere(argument: str) -> bool:
    """Return whether a path that a user names leads out of where it stands, by a link."""
    path, here = Path(argument).absolute(), Path.cwd()
    return _leaves(str(path), ".", str(here if path.is_relative_to(here) else path.parent))


class _Walk:
    """The manifests below a directory, to which patterns of ``exclude`` are relative."""

    def __init__(self, root: str, exclude: Iterable[str]) -> None:
        self._root = root
        self._exclude = [_parts(pattern) for pattern in exclude]
        self._found: list[Source] = []
        self._notes: dict[str, str] = {}
        """By normalized path: why a file is not judged."""

    def sources(self) -> Iterator[Source]:
        """Yield them sorted, directory by directory: a/z before a-b/x."""
        errors: list[OSError] = []
        for parent, directories, files in os.walk(str(PurePath(self._root)), onerror=errors.append):
            self._visit(parent, directories, files)
        for error in errors:
            yield Source(str(error.filename), cannot_be_read(error))
        for source in sorted(self._found, key=lambda source: source.path.split("/")):
            note = source.note or self._notes.get(os.path.normpath(source.path), "")
            yield source._replace(note=note)

    def _visit(self, parent: str, directories: list[str], files: list[str]) -> None:
        below = os.path.relpath(parent, self._root)
        self._notes.update(_kustomization_notes(parent, files))
        names = [name for name in directories + files if not self._excludes(f"{below}/{name}")]
        found = {name: f"{parent.rstrip('/')}/{name}".removeprefix("./") for name in names}
        if _CHART in names:
            # Its files are read as those of any directory.
            self._found.append(Source(parent.removeprefix("./"), note=CHART_NOTE))
            for name in (_CHART, _VALUES):
                if name in found and not _may_hold_objects(found[name], self._root):
                    del found[name]
        for name, path in found.items():
            note = self._note(path)
            is_visible = name in files and name.endswith(SUFFIXES) and name[0] != "."
            if note or (is_visible and not is_special_file(path)):
                self._found.append(Source(path, in_directory=True, note=note))
        directories[:] = [name for name in directories if name in found and name[0] != "."]

    def _excludes(self, path: str) -> bool:
        parts = PurePath(path).parts
        return any(
            _match(parts[:length], pattern)
            for pattern in self._exclude
            for length in range(1, len(parts) + 1)
        )

    def _note(self, path: str) -> str:
        """Return why a file or a directory is not read; empty if it is."""
        name = PurePath(path).name
        is_link = os.path.islink(path)  # noqa: PTH114 - false if it cannot be read
        if name.startswith("."):
            is_checked_in = name != _GIT and not _is_untracked(path)
            return HIDDEN_NOTE if is_checked_in and _may_hold_objects(path, self._root) else ""
        if is_directory(path):
            # os.walk follows no link. What it names below the root is found there.
            return LINK_NOTE if is_link and _leaves(path, self._root) else ""
        is_manifest = name.endswith(SUFFIXES)
        return LINK_NOTE if is_link and is_manifest and _leaves(path, self._root, ".") else ""


def _is_untracked(path: str) -> bool:
    """Return whether Git surely tracks nothing at or below a path, such as ``.venv``.

    Then its name stands nowhere in the index (git, ``Documentation/gitformat-index.adoc``). The
    index must be one that has whole names. Nothing is run: files of a pull request can look like a
    repository with commands in its configuration.
    """
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - a link is itself, not its target
    git = next((each / _GIT for each in absolute.parents if (each / _GIT).exists()), None)
    if git is None or not path.isascii():
        return False
    try:
        index, is_split = (git / "index").read_bytes(), any(git.glob("sharedindex.*"))
    except OSError:
        return False
    has_whole_names = index[:8] in (b"DIRC\0\0\0\2", b"DIRC\0\0\0\3") and not is_split
    return has_whole_names and os.fsencode(absolute.relative_to(git.parent)) not in index


def _may_hold_objects(path: str, root: str) -> bool:
    """Return whether a file, or one below a directory, has a document with a kind or an error."""
    if _leaves(path, root):
        return is_directory(path) or path.endswith(SUFFIXES)
    walked = (f"{parent}/{name}" for parent, _, names in os.walk(path) for name in names)
    for file in walked if is_directory(path) else [path]:
        if not file.endswith(SUFFIXES):
            continue
        if _leaves(file, root):
            return True
        if is_special_file(file):
            continue
        try:
            documents = list(read_documents(file, text_of(file)))
        except DocumentError:
            return True
        if any(each.error or mapping(each.value).get("kind") for each in documents):
            return True
    return False


def _kustomization_notes(directory: str, files: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the patches that the kustomization of a directory names, and itself if it makes more.

    kubectl reads a file with another kind as any other file.
    """
    for name in set(files).intersection(_KUSTOMIZATIONS):
        file = f"{directory}/{name}"
        documents: list[Document] = []
        with suppress(InputError):  # the reader of the file reports it
            documents = load_documents(file)
        for fields in (mapping(document.value) for document in documents):
            if fields.get("kind") not in (None, *KUSTOMIZE_KINDS):
                continue
            patches = [
                entry.get("path") if isinstance(entry, dict) else entry
                for entry in _entries(fields, _PATCH_FIELDS)
            ]
            named = [patch for patch in patches if isinstance(patch, str) and "\n" not in patch]
            yield from ((os.path.normpath(f"{directory}/{each}"), PATCH_NOTE) for each in named)
            is_remote = any(
                not os.path.lexists(f"{directory}/{entry}")
                for entry in _entries(fields, _RESOURCE_FIELDS)
            )
            if is_remote or len(named) < len(patches) or _entries(fields, _GENERATING_FIELDS):
                yield os.path.normpath(file), BUILD_NOTE


def _entries(fields: JSONObject, names: Iterable[str]) -> list[Any]:
    """Return the entries of lists, and what should be a list."""
    values = (fields.get(name) or [] for name in names)
    return list(chain.from_iterable(v if isinstance(v, list) else [v] for v in values))


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
