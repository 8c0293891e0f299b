"""Files and standard input: their text, and its documents, split as kubectl splits them.

Source: ``YAMLReader`` in ``k8s.io/apimachinery/pkg/util/yaml/decoder.go``. A broken document does
not hide the others.
"""

from __future__ import annotations

import errno
import io
import re
import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from webhook.documents.document import (
    Document,
    DocumentError,
    InputError,
    raise_errors,
    sentence,
    unreadable,
)
from webhook.documents.json_reader import COMMENT, COMMENT_CURE, read_json
from webhook.documents.yaml_reader import read_yaml
from webhook.wording import printable

MAX_DOCUMENTS = 50_000
"""The largest number of documents of one file: each takes about 1 KiB of memory, however short."""

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

_SEPARATOR = "---"
# A line with more than a comment or a directive.
_CONTENT = re.compile(r"(?:^|\r)[^\S\n\r]*+[^\s#%]", re.MULTILINE)
_COMMENT = re.compile("#[^\r\x85\u2028\u2029]*")
# They end a line in YAML 1.1, but not in JSON and YAML 1.2, and go-yaml drops some of them.
_OTHER_LINE_BREAK = re.compile("[\x85\u2028\u2029]")
_BRACKET = re.compile(r"\s*[{\[]")
# JSON continues like this after its first bracket; YAML in flow style rarely does.
_JSON = re.compile(r"\s*(?:\{\s*[\"}]|\[\s*[\"{\[\]])")


def load_documents(path: str, limit: int | None = None) -> list[Document]:
    """Return the documents of a file or of standard input, none of which has a fault.

    Raises:
        InputError: the file cannot be read, has more bytes than ``limit``, or a document has a
            fault; a line for each.
    """
    return valid_documents(display_name(path), read_text(path, limit))


def valid_documents(name: str, text: str) -> list[Document]:
    """Return the documents of a text, none of which has a fault; ``name`` is for messages.

    Raises:
        InputError: a document has an error or a key that is set twice; a line for each.
    """
    documents = list(read_documents(name, text))
    raise_errors((document, document.fault) for document in documents)
    return documents


def read_text(path: str, limit: int | None = None) -> str:
    """Return the text of a file, or of standard input.

    Raises:
        InputError: it cannot be read, has more bytes than ``limit``, or is not text.
    """
    try:
        return text_of(path, limit)
    except DocumentError as error:
        document = unreadable(display_name(path), error)
        raise InputError([printable(sentence(document, error))]) from error


def text_of(path: str, limit: int | None = None) -> str:
    """Return the text of a file, or of standard input.

    Raises:
        DocumentError: it cannot be read, has more bytes than ``limit``, or is not text.
    """
    try:
        with _opened(path) as file:
            # One byte more shows that there is more.
            content = file.read(-1 if limit is None else limit + 1)
    except OSError as error:
        raise cannot_be_read(error) from error
    if limit is not None and len(content) > limit:
        raise DocumentError(f"is larger than {limit // 2**20} MiB", cure="Name a smaller file")
    return decode(content)


def _opened(path: str) -> BinaryIO:
    """Open a file, or standard input.

    Raises:
        DocumentError: it cannot be one.
        OSError: it cannot be opened.
    """
    # Python has no sys.stdin if its descriptor is closed at the start.
    if path == STDIN and sys.stdin is None:
        raise DocumentError("is closed", cure="Pipe manifests to it, or name files")
    try:
        return sys.stdin.buffer if path == STDIN else io.BufferedReader(io.FileIO(path))
    except FileNotFoundError:
        if path.startswith(("https://", "http://")):
            cure = f"Download it: curl -fsSL {path} | gpufence check -"
            raise DocumentError("is a URL, not a file", cure=cure) from None
        raise DocumentError("does not exist", cure=_CHECK_PATH) from None
    except ValueError:  # A null character in the path.
        raise DocumentError("is not the path of a file", cure=_CHECK_PATH) from None


def decode(data: bytes) -> str:
    """Decode UTF-8, with or without a byte order mark.

    UTF-16 is an error: kubectl splits its bytes into documents, and this reader its characters.

    Raises:
        DocumentError: it is not UTF-8; the error names the line of the first invalid byte.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(
            f"is not UTF-8 text: byte 0x{error.object[error.start]:02x} ({error.reason})",
            line=error.object.count(b"\n", 0, error.start) + 1,
            cure="Save it as UTF-8",
        ) from error


def display_name(path: str) -> str:
    """Return the file's name in reports."""
    if path == STDIN:
        return STDIN_NAME
    # Bytes of a name that are not text cannot be written.
    return path.encode(errors="backslashreplace").decode()


def cannot_be_read(error: OSError) -> DocumentError:
    return DocumentError(
        f"cannot be read ({error.strerror or error})",
        cure=_CURES.get(error.errno or 0, _OTHER_CURE),
    )


def read_documents(path: str, text: str) -> Iterator[Document]:
    """Yield the documents of a text in order, without those that are empty or only comments.

    The last one is an error if there are more than ``MAX_DOCUMENTS``.
    """
    for document in _documents(path, text):
        if document.index == MAX_DOCUMENTS:
            problem = f"the file holds more than {MAX_DOCUMENTS:,} documents"
            document.error = DocumentError(problem, cure="Split the file")
            yield document
            return
        yield document


def _documents(path: str, text: str) -> Iterator[Document]:
    index = 0
    for after, part, line in _split(io.StringIO(text)):
        if found := _OTHER_LINE_BREAK.search(part) or _OTHER_LINE_BREAK.search(after):
            error = _ambiguous_line_break(part, line, found)
            yield Document(line, part, line, path=path, index=index, error=error)
            index += 1
            continue
        if line == 1 and not _CONTENT.search(part):
            continue
        if after:
            error = DocumentError(
                f"the document starts with --- {after:.40}, which kubectl does not accept",
                cure="Put --- on a line of its own",
            )
            yield Document(line - 1, part, line, path=path, index=index, error=error)
            index += 1
            continue
        for document in _read(part):
            if document.value is not None or document.error is not None:
                document.path, document.index = path, index
                document.move_down(line - 1)
                yield document
            index += 1


def _ambiguous_line_break(part: str, line: int, found: re.Match[str]) -> DocumentError:
    """Return the error for a character that ends a line for some readers only."""
    before = part[: found.start()] if found.string is part else ""
    code = f"{ord(found[0]):04X}"
    return DocumentError(
        f"has the character U+{code}, which ends a line for some readers of YAML only",
        line=line + before.count("\n") - (found.string is not part),
        cure=f'Remove it, or write it as an escape in double quotes: "\\u{code.lower()}"',
    )


def _split(lines: Iterable[str]) -> Iterator[tuple[str, str, int]]:
    """Yield the text after ``---`` on its line, the part below it, and the line of that part."""
    part, first, after = io.StringIO(), 1, ""
    for number, line in enumerate(lines, 1):
        if not line.startswith(_SEPARATOR):
            part.write(line)
            continue
        if number > 1:
            yield after, part.getvalue(), first
        after = line.removeprefix(_SEPARATOR).strip()
        after = "" if _COMMENT.fullmatch(after) else after
        part, first = io.StringIO(), number + 1
    yield after, part.getvalue(), first


def _read(part: str) -> Iterator[Document]:
    """Read JSON, one value or several, or one document of YAML."""
    if not _BRACKET.match(part):
        document = _read_yaml(part)
        if document.error is not None and COMMENT.match(part):
            document.error.cure = COMMENT_CURE
        yield document
        return
    values = read_json(part)
    first = next(values)
    if first.error is not None:
        # YAML in flow style also starts with a bracket.
        as_yaml = _read_yaml(part)
        if as_yaml.error is None or not _JSON.match(part):
            yield as_yaml
            return
    yield first
    yield from values


def _read_yaml(part: str) -> Document:
    try:
        return read_yaml(part) or Document(1, part)
    except DocumentError as error:
        content = _CONTENT.search(part)
        line = part.count("\n", 0, content.start()) + 1 if content else 1
        return Document(line, part, error=error)
