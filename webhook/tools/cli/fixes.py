"""``gpufence check --fix``: the mechanical fixes of findings, in the text of files."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from difflib import SequenceMatcher, unified_diff
from pathlib import Path
from typing import NamedTuple

from policies.finding import Finding
from policies.kubernetes.paths import steps
from webhook.documents.document import Document, InputError
from webhook.documents.files import STDIN, display_name, read_documents
from webhook.documents.objects import Manifest, read_objects
from webhook.tools.cli.edits import Edit
from webhook.tools.cli.evaluate import Result
from webhook.tools.cli.manifests import Source, is_special_file
from webhook.tools.cli.text_edits import CannotEditError, TextEdit, edited
from webhook.wording import printable

Judge = Callable[[Sequence[Manifest]], Iterable[Result]]

_MOST_ROUNDS = 10
"""A fix may lead to another finding: a device with the right name may need shared memory."""

_MARK = "\ufeff"


class Fix(NamedTuple):
    """The edits that fix a finding of an object, and the line of the object."""

    line: int
    rule: str
    edits: tuple[Edit, ...]


class FixedFile(NamedTuple):
    """A file before and after its fixes."""

    path: str
    before: str
    after: str
    fixes: list[Fix]

    def write(self) -> None:
        """Replace the file, which keeps its permissions and symbolic links.

        A file that another program changes meanwhile keeps that change, and stays unfixed.

        Raises:
            InputError: it cannot be replaced, and is as it was.
        """
        try:
            _replace(Path(self.path).resolve(), self.before.encode(), self.after.encode())
        except OSError as error:
            problem = f"cannot be fixed ({error.strerror or error}), and stays as it is"
            raise InputError([printable(f"{display_name(self.path)}: {problem}.")]) from error

    def difference(self) -> str:
        """Return a unified difference, as git apply and review tools read it."""
        name = display_name(self.path)
        before, after = (text.splitlines(keepends=True) for text in (self.before, self.after))
        lines = unified_diff(before, after, f"a/{name}", f"b/{name}")
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in lines
        )


class Replacement(NamedTuple):
    """The lines that are removed from ``line`` on, if any, and those that come in their place."""

    line: int
    removed: list[str]
    added: list[str]


def fixed_files(sources: Iterable[Source], judge: Judge) -> Iterator[FixedFile]:
    """Yield each file that has findings with a fix; files are not written.

    Standard input, pipes, files that are not judged, and files in another encoding
    than UTF-8 are left out.
    """
    for source in sources:
        if source.error or source.note or source.path == STDIN:
            continue
        if is_special_file(source.path):
            continue
        try:
            before = Path(source.path).read_bytes().decode()
        except (OSError, UnicodeDecodeError):
            continue  # The report has the error.
        after, fixes = before.removeprefix(_MARK), []
        for _ in range(_MOST_ROUNDS):
            after, made = _fixed(source, after, judge)
            fixes += made
            if not made:
                break
        if fixes:
            mark = _MARK if before.startswith(_MARK) else ""
            yield FixedFile(source.path, before, mark + after, fixes)


def _replace(path: Path, before: bytes, after: bytes) -> None:
    """Replace the content of a file if it is still ``before``; raises OSError, and then keeps it.

    The new content is complete on disk before it has the file's name. The old one has a name until
    it is certain that no other program wrote to it since it was read.
    """
    if not os.access(path, os.W_OK):
        raise PermissionError("you may not write it")
    if path.stat().st_nlink > 1:
        raise OSError("it has more than one hard link, and would get a file of its own")
    with tempfile.TemporaryDirectory(prefix=".gpufence-", dir=path.parent) as directory:
        new, old = Path(directory, "new"), Path(directory, "old")
        with new.open("wb") as file:
            file.write(after)
            file.flush()
            os.fsync(file.fileno())
        _keep_attributes(path, new)
        old.hardlink_to(path)
        if is_same := old.read_bytes() == before:
            new.replace(path)
            if not (is_same := old.read_bytes() == before):
                old.replace(path)
        if not is_same:
            raise OSError("another program has changed it meanwhile; run the command again")


def _keep_attributes(path: Path, new: Path) -> None:
    """Give a file the permissions of another, and its owner if this account may do that."""
    status = path.stat()
    with suppress(PermissionError):
        os.chown(new, status.st_uid, status.st_gid)
    shutil.copystat(path, new)
    os.utime(new)


def replacements(result: Result, finding: Finding) -> list[Replacement]:
    """Return how the text of a file changes by the fix of a finding; nothing without a fix."""
    document = result.manifest.document
    if not result.fix(finding) or result.error is not None or document.path.startswith("<"):
        return []
    try:
        text, _ = edited(document.text, _text_edits(result, finding))
    except CannotEditError:
        return []
    before, after = (text.splitlines(keepends=True) for text in (document.text, text))
    changes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return [
        Replacement(document.text_line + start, before[start:end], after[new_start:new_end])
        for tag, start, end, new_start, new_end in changes
        if tag != "equal"
    ]


def _fixed(source: Source, text: str, judge: Judge) -> tuple[str, list[Fix]]:
    """Return the text of a file with the fixes of all its findings, and these."""
    documents = list(read_documents(display_name(source.path), text))
    lines = Counter(document.text_line for document in documents)
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    parts: list[str] = []
    fixes: list[Fix] = []
    end = 0
    for document in documents:
        document.lenient = source.in_directory
        if document.fault or lines[document.text_line] > 1:
            continue
        after, made = _fixed_document(document, judge)
        start = text.index(document.text, starts[document.text_line - 1])
        parts += [text[end:start], after]
        end = start + len(document.text)
        fixes += made
    return "".join([*parts, text[end:]]), fixes


def _fixed_document(document: Document, judge: Judge) -> tuple[str, list[Fix]]:
    """Return the text of a document with all fixes that are certain, and these."""
    fixes = [
        (Fix(result.manifest.line, finding.rule, edits), _text_edits(result, finding))
        for result in judge(list(read_objects(document)))
        for finding in result.findings
        if (edits := result.fix(finding))
    ]
    if not fixes:
        return document.text, []
    try:
        text, effective = edited(document.text, [edit for _, edits in fixes for edit in edits])
    except CannotEditError:
        fixes = list(_certain(document.text, fixes))
        if not fixes:
            return document.text, []
        text, effective = edited(document.text, [edit for _, edits in fixes for edit in edits])
    return text, [fix for fix, edits in fixes if any(edit.key in effective for edit in edits)]


def _certain(
    text: str, fixes: Iterable[tuple[Fix, list[TextEdit]]]
) -> Iterator[tuple[Fix, list[TextEdit]]]:
    """Yield the fixes that are certain together with those before them."""
    accepted: list[TextEdit] = []
    for fix, edits in fixes:
        try:
            edited(text, [*accepted, *edits])
        except CannotEditError:
            continue
        accepted += edits
        yield fix, edits


def _text_edits(result: Result, finding: Finding) -> list[TextEdit]:
    place = tuple(map(str, result.manifest.path))
    edits = result.fix(finding)
    return [TextEdit(edit.kind, (*place, *steps(edit.path)), edit.value) for edit in edits]
