"""Which files are meant, and their text."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from webhook.cli.manifests.errors import ManifestError

STDIN = "-"
STDIN_NAME = "<stdin>"
SUFFIXES = (".yaml", ".yml", ".json")

# The longer ones first: UTF-32's mark starts with UTF-16's.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)


def expand(paths: Iterable[str]) -> Iterator[tuple[str, ManifestError | None]]:
    """Yield the files that ``paths`` mean, each once: files as they are, folders file by file.

    Of a folder, the files that end in ``.yaml``, ``.yml`` or ``.json``, sorted, in every folder
    below it but hidden ones. With the path comes the error where there is nothing to read.
    """
    seen = set()
    for path in paths:
        for file, error in _walk(path) if path != STDIN and _is_folder(path) else [(path, None)]:
            if file not in seen:
                seen.add(file)
                yield file, error


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
        return _read_stdin() if path == STDIN else Path(path).read_bytes()
    except FileNotFoundError:
        raise ManifestError("does not exist", cure="Check the path") from None
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
    return STDIN_NAME if path == STDIN else path


def _is_folder(path: str) -> bool:
    try:
        return Path(path).is_dir()
    except OSError:  # which reading it will report
        return False


def _walk(folder: str) -> Iterator[tuple[str, ManifestError | None]]:
    found: list[Path] = []
    errors: list[OSError] = []
    for parent, folders, files in os.walk(folder, onerror=errors.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [
            Path(parent, name)
            for name in files
            if name.endswith(SUFFIXES) and not name.startswith(".")
        ]
    for error in errors:
        yield str(error.filename), _cannot_be_read(error)
    if not found and not errors:
        problem = f"is a folder without manifests ({', '.join(SUFFIXES)})"
        yield folder, ManifestError(problem, cure="Name the folder or the files that hold them")
    for path in sorted(found):
        yield str(path), None


def _read_stdin() -> bytes:
    # Python has no sys.stdin where its descriptor was closed before it started.
    if sys.stdin is None:
        raise ManifestError("is closed", cure="Pipe manifests into it, or name files")
    return sys.stdin.buffer.read()


def _cannot_be_read(error: OSError) -> ManifestError:
    return ManifestError(
        f"cannot be read ({error.strerror or error})",
        cure="Let the user that runs gpufence read it",
    )
