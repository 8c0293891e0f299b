"""The files that paths stand for, and their text."""

from __future__ import annotations

import codecs
import errno
import io
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from typing import NamedTuple

from webhook.cli.manifests.errors import ManifestError
from webhook.cli.manifests.exclusion import NOTHING, Exclusion

STDIN = "-"
STDIN_NAME = "<stdin>"
SUFFIXES = (".yaml", ".yml", ".json")
_PATTERN_MARKS = "*?["

CHART = "Chart.yaml"


class Source(NamedTuple):
    """A file to read, or a Helm chart to render; ``error`` says why there is nothing to read."""

    path: str
    error: ManifestError | None = None
    in_directory: bool = False
    is_chart: bool = False


_ALLOW = "Give the user that runs gpufence read access"
_CHECK_PATH = "Check the path"
_CURES = {
    errno.EACCES: _ALLOW,
    errno.EPERM: _ALLOW,
    errno.ENOENT: _CHECK_PATH,
    errno.ENOTDIR: _CHECK_PATH,
    errno.ENAMETOOLONG: _CHECK_PATH,
    errno.EISDIR: "Name a file in it",
    errno.ELOOP: "Make the link point to a file",
}
_OTHER_CURE = "Name a readable copy"

# The longer ones first: UTF-32's mark starts with UTF-16's.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)


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


def read_text(path: str) -> str:
    """Return the text of a file, or of standard input.

    Raises:
        ManifestError: it cannot be read, or is not text.
    """
    return decode(read_bytes(path))


def read_bytes(path: str) -> bytes:
    """Return the content of a file, or of standard input.

    Raises:
        ManifestError: it cannot be read.
    """
    try:
        if path == STDIN:
            return _read_stdin()
        # Unbuffered, because there may be thousands of small files, each read at once.
        with io.FileIO(path) as file:
            return file.readall()
    except FileNotFoundError:
        raise ManifestError("does not exist", cure=_CHECK_PATH) from None
    except ValueError:  # A null character in the path.
        raise ManifestError("is not the path of a file", cure=_CHECK_PATH) from None
    except OSError as error:
        raise _cannot_be_read(error) from error


def decode(data: bytes) -> str:
    """Decode ``data``: UTF-8, or the encoding of its byte order mark.

    Raises:
        ManifestError: it is not text; the error names the line of the first invalid byte.
    """
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        before = data[: error.start].decode(encoding, "replace")
        raise ManifestError(
            f"is not {encoding.removesuffix('-sig').upper()} text: "
            f"byte 0x{data[error.start]:02x} ({error.reason})",
            line=before.count("\n") + 1,
            cure="Save it as UTF-8",
        ) from error


def display_name(path: str) -> str:
    """Return the file's name in reports."""
    if path == STDIN:
        return STDIN_NAME
    # Bytes of a name that are not text cannot be written.
    return path.encode(errors="backslashreplace").decode()


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
        yield Source(str(error.filename), _cannot_be_read(error))
    # Directory by directory: a/z before a-b/x.
    for source in sorted(sources, key=lambda source: source.path.split("/")):
        if source.is_chart or not is_special_file(source.path):
            yield source


def _read_stdin() -> bytes:
    # Python has no sys.stdin if its descriptor is closed at the start.
    if sys.stdin is None:
        raise ManifestError("is closed", cure="Pipe manifests to it, or name files")
    return sys.stdin.buffer.read()


def _cannot_be_read(error: OSError) -> ManifestError:
    return ManifestError(
        f"cannot be read ({error.strerror or error})",
        cure=_CURES.get(error.errno or 0, _OTHER_CURE),
    )
