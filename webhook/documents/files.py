"""Files and standard input: their text, and its documents, split as kubectl splits them.

Source: ``YAMLReader`` in ``k8s.io/apimachinery/pkg/util/yaml/decoder.go``. A broken document does
not hide the others.
"""

from __future__ import annotations

import codecs
import errno
import io
import re
import sys
from collections.abc import Iterator

from webhook.documents.document import (
    Document,
    DocumentError,
    InputError,
    raise_errors,
    sentence,
    unreadable,
)
from webhook.documents.json_reader import read_json
from webhook.documents.yaml_reader import read_yaml
from webhook.wording import printable

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

_SEPARATOR = "---"
# A line with more than a comment or a directive. A comment ends at any line break of YAML 1.1.
_CONTENT = re.compile(r"(?:^|[\r\x85\u2028\u2029])[^\S\n\r\x85\u2028\u2029]*+[^\s#%]", re.MULTILINE)
_COMMENT = re.compile("#[^\r\x85\u2028\u2029]*")
_BRACKET = re.compile(r"\s*[{\[]")
# JSON continues like this after its first bracket; YAML in flow style rarely does.
_JSON = re.compile(r"\s*(?:\{\s*[\"}]|\[\s*[\"{\[\]])")


def load_documents(path: str, limit: int | None = None) -> list[Document]:
    """Return the documents of a file or of standard input, none of which has a fault.

    Raises:
        InputError: the file cannot be read, has more bytes than ``limit``, or a document has a
            fault; a line for each.
    """
    try:
        text = read_text(path, limit)
    except DocumentError as error:
        raise input_error(path, error) from error
    return valid_documents(display_name(path), text)


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
        DocumentError: it cannot be read, has more bytes than ``limit``, or is not text.
    """
    return decode(read_bytes(path, limit))


def read_bytes(path: str, limit: int | None = None) -> bytes:
    """Return the content of a file, or of standard input.

    Raises:
        DocumentError: it cannot be read, or has more bytes than ``limit``.
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
        raise DocumentError("does not exist", cure=_CHECK_PATH) from None
    except ValueError:  # A null character in the path.
        raise DocumentError("is not the path of a file", cure=_CHECK_PATH) from None
    except OSError as error:
        raise cannot_be_read(error) from error
    if limit is not None and len(content) > limit:
        raise DocumentError(f"is larger than {limit // 2**20} MiB", cure="Name a smaller file")
    return content


def decode(data: bytes) -> str:
    """Decode ``data``: UTF-8, or the encoding of its byte order mark.

    Raises:
        DocumentError: it is not text; the error names the line of the first invalid byte.
    """
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        before = data[: error.start].decode(encoding, "replace")
        raise DocumentError(
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


def cannot_be_read(error: OSError) -> DocumentError:
    return DocumentError(
        f"cannot be read ({error.strerror or error})",
        cure=_CURES.get(error.errno or 0, _OTHER_CURE),
    )


def _read_stdin(size: int) -> bytes:
    # Python has no sys.stdin if its descriptor is closed at the start.
    if sys.stdin is None:
        raise DocumentError("is closed", cure="Pipe manifests to it, or name files")
    return sys.stdin.buffer.read(size)


def input_error(path: str, error: DocumentError) -> InputError:
    """Return the exception for a file that cannot be read."""
    return InputError([printable(sentence(unreadable(display_name(path), error), error))])


def read_documents(path: str, text: str) -> Iterator[Document]:
    """Yield the documents of a file in order, without those that are empty or only comments."""
    index = 0
    for after, part, line in _split(text):
        if line == 1 and _is_blank(part):
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


def _split(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield the text after ``---`` on its line, the part below it, and the line of that part."""
    start, line, after = 0, 1, ""
    while (at := _separator(text, start)) >= 0:
        part = text[start:at]
        if start or part:
            yield after, part, line
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        after = text[at + len(_SEPARATOR) : end].strip()
        after = "" if _COMMENT.fullmatch(after) else after
        line += part.count("\n") + 1
        start = end + 1
    yield after, text[start:], line


def _separator(text: str, start: int) -> int:
    """Return the position of the next separator; ``start`` is the start of a line. -1 if none."""
    if text.startswith(_SEPARATOR, start):
        return start
    before = text.find(f"\n{_SEPARATOR}", start)
    return before + 1 if before >= 0 else -1


def _read(part: str) -> list[Document]:
    """Read JSON, one value or several, or one document of YAML."""
    if not _BRACKET.match(part):
        return [_read_yaml(part)]
    values = list(read_json(part))
    if values[0].error is not None:
        # YAML in flow style also starts with a bracket.
        as_yaml = _read_yaml(part)
        if as_yaml.error is None or not _JSON.match(part):
            return [as_yaml]
    return values


def _read_yaml(part: str) -> Document:
    try:
        return read_yaml(part) or Document(1, part)
    except DocumentError as error:
        return Document(_first_line(part), part, error=error)


def _is_blank(text: str) -> bool:
    """Return whether the text holds only comments and directives."""
    return not _CONTENT.search(text)


def _first_line(text: str) -> int:
    """Return the number of the first line with more than a comment."""
    content = _CONTENT.search(text)
    return text.count("\n", 0, content.start()) + 1 if content else 1
