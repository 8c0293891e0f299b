"""The documents of a text: split as kubectl splits them, each read by itself.

Source: ``YAMLReader`` in ``k8s.io/apimachinery/pkg/util/yaml/decoder.go``. A broken
document does not hide the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from webhook.documents.errors import InputError, ManifestError
from webhook.documents.files import display_name, read_text
from webhook.documents.json_reader import read_json
from webhook.documents.yaml_reader import Parsed, read_yaml
from webhook.wording import printable

_SEPARATOR = "---"
# A line with more than a comment or a directive. A comment ends at any line break of YAML 1.1.
_CONTENT = re.compile(r"(?:^|[\r\x85\u2028\u2029])[^\S\n\r\x85\u2028\u2029]*+[^\s#%]", re.MULTILINE)
_COMMENT = re.compile("#[^\r\x85\u2028\u2029]*")
_BRACKET = re.compile(r"\s*[{\[]")
# JSON continues like this after its first bracket; YAML in flow style rarely does.
_JSON = re.compile(r"\s*(?:\{\s*[\"}]|\[\s*[\"{\[\]])")


class Document(msgspec.Struct, eq=False):
    """One document of a file, or what is wrong with it.

    ``index`` counts from 0 as YAML does: every ``---`` starts a document, even an empty one. Text
    before the first ``---`` is a document unless it holds only comments. For JSON, ``index`` counts
    the values. ``text`` is the part of the file with the document; it starts at line
    ``text_line``. Lines count from 1, within the file. ``duplicate`` is about a key that is set
    twice. A ``lenient`` document may be a template or a patch: it is in a directory of manifests.
    """

    path: str
    index: int
    line: int
    text: str
    text_line: int
    value: Any = None
    error: ManifestError | None = None
    duplicate: ManifestError | None = None
    item_lines: list[int] = []
    lenient: bool = False

    @property
    def fault(self) -> ManifestError | None:
        """What is wrong, for documents in which a duplicate key is an error as well."""
        return self.error or self.duplicate


def load_documents(path: str, limit: int | None = None) -> list[Document]:
    """Return the documents of a file or of standard input, none of which has a fault.

    Raises:
        InputError: the file cannot be read, has more bytes than ``limit``, or a document has a
            fault; a line for each.
    """
    try:
        text = read_text(path, limit)
    except ManifestError as error:
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


def raise_errors(errors: Iterable[tuple[Document, ManifestError | None]]) -> None:
    """Raise one exception for all errors, if there are any.

    Raises:
        InputError: with a line for each error.
    """
    lines = [printable(sentence(document, error)) for document, error in errors if error]
    if lines:
        raise InputError(lines)


def input_error(path: str, error: ManifestError) -> InputError:
    """Return the exception for a file that cannot be read."""
    return InputError([printable(sentence(unreadable(display_name(path), error), error))])


def sentence(document: Document, error: ManifestError) -> str:
    """Return the error as one line: place, document, problem, and what to do."""
    return f"{place(document, error)}: {explanation(document, error)}"


def place(document: Document, error: ManifestError) -> str:
    """Return the place of the error, in the form that editors and terminals recognize."""
    line = error.line or (document.line if document.text else 0)
    numbers = (line, error.column) if error.line else (line,)
    return ":".join([document.path, *(str(number) for number in numbers if number)])


def explanation(document: Document, error: ManifestError) -> str:
    """Return the error without its place. Documents count from 1."""
    number = f"document {document.index + 1}: " if document.text else ""
    cure = f" {error.cure}." if error.cure else ""
    return f"{number}{error.problem}.{cure}"


def unreadable(path: str, error: ManifestError) -> Document:
    """Return a document for a file without text."""
    return Document(path, 0, error.line or 1, "", 1, error=error)


def read_documents(path: str, text: str) -> Iterator[Document]:
    """Yield the documents of a file in order, without those that are empty or only comments."""
    index = 0
    for after, part, line in _split(text):
        if line == 1 and _is_blank(part):
            continue
        if after:
            error = ManifestError(
                f"the document starts with --- {after:.40}, which kubectl does not accept",
                cure="Put --- on a line of its own",
            )
            yield Document(path, index, line - 1, part, line, error=error)
            index += 1
            continue
        for parsed in _read(part):
            if parsed.value is not None or parsed.error is not None:
                yield _document(path, index, part, line, parsed)
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


def _read(part: str) -> list[Parsed]:
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


def _read_yaml(part: str) -> Parsed:
    try:
        return read_yaml(part) or Parsed(None, 1)
    except ManifestError as error:
        return Parsed(None, _first_line(part), error=error)


def _document(path: str, index: int, text: str, text_line: int, parsed: Parsed) -> Document:
    above = text_line - 1
    for fault in (parsed.error, parsed.duplicate):
        if fault is not None and fault.line:
            fault.line += above
    line = parsed.line + above
    document = Document(
        path, index, line, text, text_line, parsed.value, parsed.error, parsed.duplicate
    )
    document.item_lines = [line + above for line in parsed.item_lines]
    if parsed.span is not None:
        document.text = text[slice(*parsed.span)]
        document.text_line = document.line
    return document


def _is_blank(text: str) -> bool:
    """Return whether the text holds only comments and directives."""
    return not _CONTENT.search(text)


def _first_line(text: str) -> int:
    """Return the number of the first line with more than a comment."""
    content = _CONTENT.search(text)
    return text.count("\n", 0, content.start()) + 1 if content else 1
