"""Edits of YAML and JSON as text: everything else stays as it is, byte for byte.

An edit replaces, adds or removes text at the marks of the YAML parser. The result is parsed and
compared with the edited value, so that no edit damages a document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import yaml

from policies.finding import EditKind
from policies.kubernetes.editor import clone
from webhook.cli.yaml_writer import entry_lines
from webhook.documents.document import DocumentError
from webhook.documents.scalars import resolve_plain
from webhook.documents.yaml_reader import Parser, read_yaml

_PLAIN = re.compile(r"[A-Za-z/][\w./-]*", re.ASCII)
_COMMENT = re.compile(r"[ \t]*#")
_REST = re.compile(r"[ \t]*(?:[ \t]#.*)?\r?$")
_OTHER_LINE_BREAK = re.compile("\r(?!\n)|[\x85\u2028\u2029]")
# What is removed changes the indexes of lists, and what is renamed the paths of other edits.
_ORDER: dict[EditKind, int] = {"set": 0, "append": 1, "remove": 2, "rename": 3}


class CannotEditError(Exception):
    """The text has a form in which the effect of an edit is not certain."""


class TextEdit(NamedTuple):
    """A change of the value at a path, whose steps begin at the root of the document."""

    kind: EditKind
    path: tuple[str, ...]
    value: Any = None

    @property
    def key(self) -> str:
        """The identity of the edit, as JSON."""
        return json.dumps(self)


class _Node(msgspec.Struct, eq=False):
    """A value at ``text[start:end]``. ``entries`` are keys with values; a list has no keys.

    A value with an anchor is ``shared``, and so is an alias: an edit would change other values.
    """

    start: int
    end: int
    scalar: str | None = None
    quote: str = ""
    is_flow: bool = False
    is_list: bool = False
    is_shared: bool = False
    entries: list[tuple[_Node | None, _Node]] = []


class _Change(NamedTuple):
    """A replacement of a part of the text, and the part that no other change may touch."""

    start: int
    end: int
    text: str
    node: _Node


def edited(text: str, edits: Iterable[TextEdit]) -> tuple[str, frozenset[str]]:
    """Return the text of a document with all edits, and the keys of those that change something.

    Raises:
        CannotEditError: the effect of an edit is not certain.
    """
    if _OTHER_LINE_BREAK.search(text):
        raise CannotEditError
    left = list({edit.key: edit for edit in edits}.values())
    left.sort(key=lambda e: [int(s) if s.isdecimal() else -1 for s in e.path], reverse=True)
    left.sort(key=lambda edit: _ORDER[edit.kind])
    expected = clone(_value(text))
    try:
        left = [edit for edit in left if _apply(expected, edit)]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CannotEditError from error
    effective = frozenset(edit.key for edit in left)
    while left:
        tree = _Tree(text)
        changes: list[_Change] = []
        later: list[TextEdit] = []
        for edit in left:
            if _ORDER[edit.kind] != _ORDER[left[0].kind]:
                later.append(edit)
                continue
            change = tree.change(edit)
            if change is None:
                continue
            if any(_overlap(change.node, other.node) for other in changes):
                later.append(edit)
            else:
                changes.append(change)
        for start, end, replacement, _ in sorted(changes, reverse=True):
            text = text[:start] + replacement + text[end:]
        left = later
    if _value(text) != expected:
        raise CannotEditError
    return text, effective


def _overlap(one: _Node, other: _Node) -> bool:
    return one.start <= other.end and other.start <= one.end


def _value(text: str) -> Any:
    try:
        document = read_yaml(text)
    except DocumentError as error:
        raise CannotEditError from error
    if document is None or document.duplicate is not None:
        raise CannotEditError
    return document.value


def _apply(root: Any, edit: TextEdit) -> bool:
    """Edit a parsed document, and return whether it changes.

    A mapping or a list that would be empty is removed.
    """
    *above, last = edit.path
    parents = [root]
    for step in above:
        parent = parents[-1]
        child = parent[int(step)] if isinstance(parent, list) else parent.get(step)
        if child is None and edit.kind in ("remove", "rename"):
            return False
        if child is None:
            child = parent[step] = {}
        parents.append(child)
    parent = parents[-1]
    match edit.kind:
        case "set":
            parent[last] = edit.value
        case "append":
            parent[last] = [*(parent.get(last) or ()), edit.value]
        case "rename" if last in parent:
            if edit.value in parent:
                raise CannotEditError
            pairs = [(edit.value if key == last else key, value) for key, value in parent.items()]
            parent.clear()
            parent.update(pairs)
        case "rename":
            return False
        case "remove" if int(last) < len(parent) if isinstance(parent, list) else last in parent:
            for step in reversed(edit.path):
                parent = parents.pop()
                del parent[int(step) if isinstance(parent, list) else step]
                if parent or not parents or isinstance(parents[-1], list):
                    break
        case "remove":
            return False
    return True


class _Tree:
    """The values of a document, with their places in its text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._is_json = text.lstrip().startswith(("{", "["))
        self._line_end = "\r\n" if "\r\n" in text else "\n"
        self._event: Any = Parser(text).get_event
        self._event()
        self._event()
        self._root = self._read(self._event())

    def change(self, edit: TextEdit) -> _Change | None:
        """Return the change of the text for an edit; ``None`` if it has nothing to change.

        Raises:
            CannotEditError: its effect would not be certain.
        """
        found = self._find(edit.path)
        rest = edit.path[len(found) :]
        node = found[-1][1] if found else self._root
        if edit.kind in ("set", "append"):
            return self._with(node, rest, edit)
        if rest:
            return None
        if edit.kind == "rename":
            parent = found[-2][1] if len(found) > 1 else self._root
            key = found[-1][0]
            if key is None:
                raise CannotEditError
            return _Change(key.start, key.end, self._scalar(edit.value, key.quote), parent)
        return self._without([self._root, *(value for _, value in found)])

    def _find(self, path: tuple[str, ...]) -> list[tuple[_Node | None, _Node]]:
        """Return the entries on a path, as far as it exists."""
        node, found = self._root, []
        for step in path:
            if node.is_shared:
                raise CannotEditError
            entry = None
            if node.is_list:
                entry = node.entries[int(step)] if int(step) < len(node.entries) else None
            for key, value in () if node.is_list else node.entries:
                entry = (key, value) if key is not None and key.scalar == step else entry
            if entry is None:
                break
            found.append(entry)
            node = entry[1]
        if node.is_shared:
            raise CannotEditError
        return found

    def _with(self, node: _Node, rest: tuple[str, ...], edit: TextEdit) -> _Change:
        """Return the change that sets a value below a node, or appends it there."""
        value = edit.value if edit.kind == "set" or (not rest and node.is_list) else [edit.value]
        for step in reversed(rest[1:]):
            value = {step: value}
        key = rest[0] if rest else None
        if node.entries and (key is not None or node.is_list):
            return self._added(node, key, value)
        if key is not None:
            value = {key: value}
        elif node.is_list:
            value = [value]
        if node.scalar is None and node.entries:
            raise CannotEditError
        text = self._scalar(value, node.quote)
        return _Change(node.start, node.end, text if node.end > node.start else f" {text}", node)

    def _added(self, node: _Node, key: str | None, value: Any) -> _Change:
        """Return the change that adds an entry after the last one."""
        first = node.entries[0][0] or node.entries[0][1]
        at = node.entries[-1][1].end
        if node.is_flow:
            entry = self._inline(value)
            if key is not None:
                entry = f"{self._inline(key)}: {entry}"
            own_line = self._indent(first.start)
            between = ", " if own_line is None else f",{self._line_end}{own_line}"
            return _Change(at, at, f"{between}{entry}", node)
        indent = " " * (node.start - self._line_start(node.start))
        end = self._line_end_after(at)
        lines = entry_lines(key, value, indent, indent)
        return _Change(end, end, "".join(f"{self._line_end}{line}" for line in lines), node)

    def _without(self, found: list[_Node]) -> _Change:
        """Return the change that removes the last value, and what would be empty without it."""
        while len(found) > 2 and len(found[-2].entries) == 1 and not found[-3].is_list:
            found.pop()
        parent, node = found[-2:]
        index = next(i for i, (_, value) in enumerate(parent.entries) if value is node)
        if parent.is_flow:
            return self._without_flow(parent, index)
        key, value = parent.entries[index]
        start = key.start if key else self._text.rfind("-", 0, value.start + 1)
        line, end = self._line_start(start), self._line_end_after(value.end)
        if self._indent(start) is None:
            # The first entry of a mapping in a list: the next one takes its place.
            following = parent.entries[index + 1 :]
            if not following or following[0][0] is None:
                raise CannotEditError
            at = following[0][0].start
            if self._text[value.end : at].strip():
                raise CannotEditError
            return _Change(start, at, "", parent)
        kept = [
            text
            for text, offset in self._lines(line, end)
            if _COMMENT.match(text) and not _is_in_scalar(value, offset)
        ]
        after = min(end + len(self._line_end), len(self._text))
        return _Change(line, after, "".join(f"{text}{self._line_end}" for text in kept), parent)

    def _without_flow(self, parent: _Node, index: int) -> _Change:
        bounds = [((key or value).start, value.end) for key, value in parent.entries]
        start, end = bounds[index]
        if index:
            gap = bounds[index - 1][1], start
            removed = gap[0], end
        elif len(bounds) > 1:
            gap = end, bounds[1][0]
            removed = start, gap[1]
        else:
            gap, removed = (start, start), (start, end)
        if "#" in self._text[slice(*gap)]:
            raise CannotEditError
        return _Change(*removed, "", parent)

    # Text.

    def _scalar(self, value: Any, quote: str) -> str:
        """Return a value in the quotes of the one that it replaces, if it is text."""
        if not (quote and isinstance(value, str)):
            return self._inline(value)
        return f"'{value}'" if quote == "'" and "'" not in value else json.dumps(value)

    def _inline(self, value: Any) -> str:
        """Return a value on one line."""
        if self._is_json:
            return json.dumps(value)
        if isinstance(value, dict):
            pairs = (f"{self._inline(key)}: {self._inline(item)}" for key, item in value.items())
            return f"{{{', '.join(pairs)}}}"
        if isinstance(value, list):
            return f"[{', '.join(map(self._inline, value))}]"
        is_plain = isinstance(value, str) and _PLAIN.fullmatch(value)
        return value if is_plain and resolve_plain(value) == value else json.dumps(value)

    def _line_start(self, offset: int) -> int:
        return self._text.rfind("\n", 0, offset) + 1

    def _indent(self, offset: int) -> str | None:
        """Return the blanks before an offset, if there is nothing else on its line."""
        before = self._text[self._line_start(offset) : offset]
        return None if before.strip() else before

    def _line_end_after(self, offset: int) -> int:
        """Return the end of a line, on which only a comment may follow."""
        end = self._text.find("\n", offset)
        end = len(self._text) if end < 0 else end
        if not _REST.fullmatch(self._text, offset, end):
            raise CannotEditError
        return end - 1 if self._text[end - 1 : end] == "\r" else end

    def _lines(self, start: int, end: int) -> Iterator[tuple[str, int]]:
        for line in self._text[start:end].split("\n"):
            yield line.rstrip("\r"), start
            start += len(line) + 1

    # Parsing.

    @staticmethod
    def _end_of(event: Any) -> int:
        end: int = event.end_mark.index
        return end

    def _read(self, event: Any) -> _Node:
        start, end = event.start_mark.index, event.end_mark.index
        is_shared = getattr(event, "anchor", None) is not None
        if isinstance(event, yaml.AliasEvent):
            return _Node(start, end, "", is_shared=True)
        if isinstance(event, yaml.ScalarEvent):
            style = event.style or ""
            if style in ("|", ">"):
                end = start + len(self._text[start:end].rstrip())
            quote = style if style in ("'", '"') else ""
            return _Node(start, end, event.value, quote, is_shared=is_shared)
        is_list = isinstance(event, yaml.SequenceStartEvent)
        node = _Node(
            start, end, is_flow=bool(event.flow_style), is_list=is_list, is_shared=is_shared
        )
        node.entries = list(self._entries(is_list=is_list))
        if node.is_flow:
            node.end = self._closed
        elif node.entries:
            first = node.entries[0][0] or node.entries[0][1]
            # Anchors and tags come before the first key.
            node.start = node.start if is_list else first.start
            node.end = node.entries[-1][1].end
        return node

    def _entries(self, *, is_list: bool) -> Iterator[tuple[_Node | None, _Node]]:
        while not isinstance((event := self._event()), yaml.CollectionEndEvent):
            key = None if is_list else self._read(event)
            yield key, self._read(event if is_list else self._event())
        self._closed = self._end_of(event)


def _is_in_scalar(node: _Node, offset: int) -> bool:
    if node.scalar is not None:
        return node.start < offset < node.end
    return any(_is_in_scalar(value, offset) for _, value in node.entries)
