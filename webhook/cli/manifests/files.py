"""Which files are meant, and their text."""

from __future__ import annotations

import codecs
import errno
import io
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath

from webhook.cli.manifests.errors import ManifestError
from webhook.cli.manifests.exclusion import NOTHING, Exclusion

STDIN = "-"
STDIN_NAME = "<stdin>"
SUFFIXES = (".yaml", ".yml", ".json")
_PATTERN_MARKS = "*?["

ToRead = tuple[str, ManifestError | None]
"""A path, and the error where there is nothing to read."""

_ALLOW = "Let the user that runs gpufence read it"
_CHECK_PATH = "Check the path"
_CURES = {
    errno.EACCES: _ALLOW,
    errno.EPERM: _ALLOW,
    errno.ENOENT: _CHECK_PATH,
    errno.ENOTDIR: _CHECK_PATH,
    errno.ENAMETOOLONG: _CHECK_PATH,
    errno.EISDIR: "Name a file in it",
    errno.ELOOP: "Have the link lead to a file",
}
_OTHER_CURE = "Name a copy that can be read"

# The longer ones first: UTF-32's mark starts with UTF-16's.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)


def expand(paths: Iterable[str], exclude: Exclusion = NOTHING) -> Iterator[ToRead]:
    """Yield the files that ``paths`` mean, each once: files as they are, folders file by file.

    Of a folder, regular files that end in ``.yaml``, ``.yml`` or ``.json``, sorted, in every folder
    below it but hidden ones, and without what is excluded. A path that does not exist and has
    ``*``, ``?`` or ``[`` in it is a pattern of such files and folders, for shells that have not
    expanded it (``**`` for any number of folders). With the path comes the error where there is
    nothing to read.
    """
    seen = set()
    for path in paths:
        for file, error in _files(path, exclude):
            if file not in seen:
                seen.add(file)
                yield file, error


def _files(path: str, exclude: Exclusion) -> Iterable[ToRead]:
    if path == STDIN:
        return [(path, None)]
    if is_directory(path):
        return _folder(path, exclude)
    if any(mark in path for mark in _PATTERN_MARKS) and not os.path.lexists(path):
        return _matching(path, exclude)
    return [(path, None)]


def read_text(path: str) -> str:
    """Return the text of a file, or of the standard input.

    Raises:
        ManifestError: it cannot be read, or is no text.
    """
    return decode(read_bytes(path))


def read_bytes(path: str) -> bytes:
    """Return what a file holds, or the standard input.

    Raises:
        ManifestError: it cannot be read.
    """
    try:
        if path == STDIN:
            return _read_stdin()
        # Unbuffered, as it is read at once: there may be thousands of small files.
        with io.FileIO(path) as file:
            return file.readall()
    except FileNotFoundError:
        raise ManifestError("does not exist", cure=_CHECK_PATH) from None
    except ValueError:  # A null character, which a path in a file may be written with.
        raise ManifestError("is not the path of a file", cure=_CHECK_PATH) from None
    except OSError as error:
        raise _cannot_be_read(error) from error


def decode(data: bytes) -> str:
    """Return the text of ``data``: UTF-8, or what its byte order mark says.

    Raises:
        ManifestError: naming the line with the first byte that is no text.
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
    """Return what the file is called in reports."""
    if path == STDIN:
        return STDIN_NAME
    # The bytes of a name that are no text cannot be written.
    return path.encode(errors="backslashreplace").decode()


def is_directory(path: str) -> bool:
    try:
        return Path(path).is_dir()
    except OSError:  # which reading it will report
        return False


def is_special_file(path: str) -> bool:
    """Tell whether the path is there and no regular file: to read a pipe may take forever."""
    try:
        return not stat.S_ISREG(Path(path).stat().st_mode)
    except OSError:  # which reading it will report
        return False


def _folder(folder: str, exclude: Exclusion) -> Iterator[ToRead]:
    nothing = True
    for file in _walk(folder, folder, exclude):
        nothing = False
        yield file
    if nothing:
        problem = f"is a folder without manifests ({', '.join(SUFFIXES)})"
        yield folder, ManifestError(problem, cure="Name the folder or the files that hold them")


def _matching(pattern: str, exclude: Exclusion) -> Iterator[ToRead]:
    parts = PurePath(pattern).parts
    fixed = next(n for n, part in enumerate(parts) if any(mark in part for mark in _PATTERN_MARKS))
    root = Path(*parts[:fixed])
    try:
        matches = sorted(root.glob("/".join(parts[fixed:])), key=lambda path: path.parts)
    except ValueError as error:
        yield (
            pattern,
            ManifestError(f"is no pattern ({error})", cure="Write ** as a name of its own"),
        )
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
            files = [(file, None)]
        else:
            files = []
        nothing = nothing and not files
        yield from files
    if nothing:
        problem = f"matches no manifests ({', '.join(SUFFIXES)})"
        yield pattern, ManifestError(problem, cure="Check the pattern")


def _walk(folder: str, root: str, exclude: Exclusion) -> Iterator[ToRead]:
    """Yield the manifests below a folder, sorted; what is excluded is so by its path from root."""
    found: list[str] = []
    errors: list[OSError] = []
    for parent, folders, files in os.walk(str(PurePath(folder)), onerror=errors.append):
        below = os.path.relpath(parent, root)
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and f"{below}/{name}" not in exclude
        ]
        found += [
            f"{parent.rstrip('/')}/{name}".removeprefix("./")
            for name in files
            if name.endswith(SUFFIXES)
            and not name.startswith(".")
            and f"{below}/{name}" not in exclude
        ]
    for error in errors:
        yield str(error.filename), _cannot_be_read(error)
    # Folder by folder: a/z before a-b/x.
    for path in sorted(found, key=lambda path: path.split("/")):
        if not is_special_file(path):
            yield path, None


def _read_stdin() -> bytes:
    # Python has no sys.stdin where its descriptor was closed before it started.
    if sys.stdin is None:
        raise ManifestError("is closed", cure="Pipe manifests into it, or name files")
    return sys.stdin.buffer.read()


def _cannot_be_read(error: OSError) -> ManifestError:
    return ManifestError(
        f"cannot be read ({error.strerror or error})",
        cure=_CURES.get(error.errno or 0, _OTHER_CURE),
    )
