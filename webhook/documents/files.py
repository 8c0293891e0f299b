"""Files and standard input as text."""

from __future__ import annotations

import codecs
import errno
import io
import sys

from webhook.documents.errors import ManifestError

STDIN = "-"
STDIN_NAME = "<stdin>"

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


def read_text(path: str, limit: int | None = None) -> str:
    """Return the text of a file, or of standard input.

    Raises:
        ManifestError: it cannot be read, has more bytes than ``limit``, or is not text.
    """
    return decode(read_bytes(path, limit))


def read_bytes(path: str, limit: int | None = None) -> bytes:
    """Return the content of a file, or of standard input.

    Raises:
        ManifestError: it cannot be read, or has more bytes than ``limit``.
    """
    # One byte more shows that there is more.
    size = -1 if limit is None else limit + 1
    try:
        if path == STDIN:
            content = _read_stdin(size)
        else:
            with io.BufferedReader(io.FileIO(path)) as file:
                content = file.read(size)
    except FileNotFoundError:
        raise ManifestError("does not exist", cure=_CHECK_PATH) from None
    except ValueError:  # A null character in the path.
        raise ManifestError("is not the path of a file", cure=_CHECK_PATH) from None
    except OSError as error:
        raise cannot_be_read(error) from error
    if limit is not None and len(content) > limit:
        raise ManifestError(f"is larger than {limit // 2**20} MiB", cure="Name a smaller file")
    return content


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


def cannot_be_read(error: OSError) -> ManifestError:
    return ManifestError(
        f"cannot be read ({error.strerror or error})",
        cure=_CURES.get(error.errno or 0, _OTHER_CURE),
    )


def _read_stdin(size: int) -> bytes:
    # Python has no sys.stdin if its descriptor is closed at the start.
    if sys.stdin is None:
        raise ManifestError("is closed", cure="Pipe manifests to it, or name files")
    return sys.stdin.buffer.read(size)
