"""Edits of YAML and JSON as text: everything else stays as it is, byte for byte.

An edit replaces, adds or removes text at the marks of the YAML parser. The result is parsed and
compared with the edited value, so that no edit damages a document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import yaml

from policies.kubernetes.editor import clone
from webhook.documents.document import DocumentError
from webhook.documents.objects import Node, entries_of
from webhook.documents.scalars import resolve_plain
from webhook.documents.yaml_reader import Parser, read_yaml
from webhook.tools.cli.edits import EditKind
from webhook.tools.cli.yaml_writer import entry_lines

_PLAIN = re.compile(r"[A-Za-z/][\w./-]*", re.ASCII)
_COMMENT = re.compile(r"[ \t]*#")
_REST = re.compile(r"[ \t]*(?:[ \t]#.*)?\r?$")
_OTHER_LINE_BREAK = re.compile("\r(?!\n)")
# What is removed changes the indexes of lists, and what is renamed the paths of other edits.
_ORDER: dict[EditKind, int] = {"set": 0, "append": 1, "remove": 2, "rename": 3}

_Entry: TypeAlias = tuple[Node, Node]


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


class _Change(NamedTuple):
    """A replacement of a part of the text, and the collection or value whose text it changes."""

    start: int
    end: int
    text: str
    around: tuple[int, int]

    def overlaps(self, other: _Change) -> bool:
        """Return whether one change shifts the positions of the other."""
        return self.around[0] <= other.around[1] and other.around[0] <= self.around[1]


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
            if edit.kind != left[0].kind:
                later.append(edit)
            elif (change := tree.change(edit)) is None:
                continue
            elif any(change.overlaps(other) for other in changes):
                later.append(edit)
            else:
                changes.append(change)
        for start, end, replacement, _ in sorted(changes, reverse=True):
            text = text[:start] + replacement + text[end:]
        left = later
    if _value(text) != expected:
        raise CannotEditError
    return text, effective


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
    """The values of a document, with their places in its text.

    An entry of a mapping is a key with its value; an entry of a list has no key. An edit below an
    anchor also changes the aliases. The comparison with the edited object rejects such an edit.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._is_json = text.lstrip().startswith(("{", "["))
        self._line_end = "\r\n" if "\r\n" in text else "\n"
        try:
            self._root = Parser(text).get_single_node()
        except yaml.YAMLError as error:
            raise CannotEditError from error

    def change(self, edit: TextEdit) -> _Change | None:
        """Return the change of the text for an edit; ``None`` if an earlier edit made it.

        Raises:
            CannotEditError: its effect would not be certain.
        """
        found = self._find(edit.path)
        rest = edit.path[len(found) :]
        if edit.kind in ("set", "append"):
            return self._with(found[-1][1] if found else self._root, rest, edit)
        if rest:
            return None
        path = [self._root, *(value for _, value in found)]
        if edit.kind == "remove":
            return self._without(path)
        key = found[-1][0]
        if key is None:
            raise CannotEditError
        text = self._scalar(edit.value, key)
        return self._change(path[-2], key.start_mark.index, self._end(key), text)

    def _find(self, path: tuple[str, ...]) -> list[_Entry]:
        """Return the entries on a path, as far as it exists."""
        node, found = self._root, []
        for step in path:
            entries = entries_of(node)
            if isinstance(node, yaml.SequenceNode):
                entries = entries[int(step) : int(step) + 1]
            else:
                entries = [(key, value) for key, value in entries if key.value == step]
            if not entries:
                break
            found.append(entries[-1])
            node = entries[-1][1]
        return found

    def _with(self, node: Node, rest: tuple[str, ...], edit: TextEdit) -> _Change:
        """Return the change that sets a value below a node, or appends it there."""
        is_list = isinstance(node, yaml.SequenceNode)
        value = edit.value if edit.kind == "set" or (not rest and is_list) else [edit.value]
        for step in reversed(rest[1:]):
            value = {step: value}
        key = rest[0] if rest else None
        entries = entries_of(node)
        if entries and (key is not None or is_list):
            return self._with_entry(node, key, value)
        if entries:
            raise CannotEditError
        if key is not None:
            value = {key: value}
        elif is_list:
            value = [value]
        start, end = self._start(node), self._end(node)
        text = self._scalar(value, node)
        return self._change(node, start, end, text if end > start else f" {text}")

    def _with_entry(self, node: Node, key: str | None, value: Any) -> _Change:
        """Return the change that adds an entry after the last one."""
        at = self._end(entries_of(node)[-1][1])
        start = self._start(node)
        if node.flow_style:
            entry = self._inline(value)
            if key is not None:
                entry = f"{self._inline(key)}: {entry}"
            own_line = self._indent(_first(node).start_mark.index)
            between = ", " if own_line is None else f",{self._line_end}{own_line}"
            return self._change(node, at, at, f"{between}{entry}")
        indent = " " * (start - self._line_start(start))
        end = self._line_end_after(at)
        lines = entry_lines(key, value, indent, indent)
        text = "".join(f"{self._line_end}{line}" for line in lines)
        return self._change(node, end, end, text)

    def _without(self, found: list[Node]) -> _Change:
        """Return the change that removes the last value, and what would be empty without it."""
        while len(found) > 2 and len(found[-2].value) == 1:
            if isinstance(found[-3], yaml.SequenceNode):
                break
            found.pop()
        parent, node = found[-2:]
        entries = entries_of(parent)
        index = next(i for i, (_, value) in enumerate(entries) if value is node)
        if parent.flow_style:
            return self._without_flow(parent, index)
        key, value = entries[index]
        value_start = value.start_mark.index
        start = key.start_mark.index if key else self._text.rfind("-", 0, value_start + 1)
        line, end = self._line_start(start), self._line_end_after(self._end(value))
        if self._indent(start) is None:
            # The first entry of a mapping in a list: the next one takes its place.
            following = entries[index + 1 :]
            if not following or following[0][0] is None:
                raise CannotEditError
            at = following[0][0].start_mark.index
            if self._text[self._end(value) : at].strip():
                raise CannotEditError
            return self._change(parent, start, at, "")
        kept = [
            text
            for text, offset in self._lines(line, end)
            if _COMMENT.match(text) and not self._is_in_scalar(value, offset)
        ]
        after = min(end + len(self._line_end), len(self._text))
        text = "".join(f"{text}{self._line_end}" for text in kept)
        return self._change(parent, line, after, text)

    def _without_flow(self, parent: Node, index: int) -> _Change:
        bounds = [
            ((key or value).start_mark.index, self._end(value)) for key, value in entries_of(parent)
        ]
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
        return self._change(parent, *removed, "")

    # Places.

    def _start(self, node: Node) -> int:
        # Anchors and tags come before the first key.
        is_block = isinstance(node, yaml.MappingNode) and not node.flow_style
        return int((_first(node) if is_block else node).start_mark.index)

    def _end(self, node: Node) -> int:
        start: int = node.start_mark.index
        end: int = node.end_mark.index
        if isinstance(node, yaml.CollectionNode):
            is_block = bool(node.value) and not node.flow_style
            return self._end(entries_of(node)[-1][1]) if is_block else end
        is_block = node.style in ("|", ">")
        return start + len(self._text[start:end].rstrip()) if is_block else end

    def _is_in_scalar(self, node: Node, offset: int) -> bool:
        if isinstance(node, yaml.ScalarNode):
            return node.start_mark.index < offset < self._end(node)
        # The node of an alias stands elsewhere, and a few of them can name millions.
        is_around = node.start_mark.index <= offset <= node.end_mark.index
        return is_around and any(self._is_in_scalar(value, offset) for _, value in entries_of(node))

    # Text.

    def _change(self, node: Node, start: int, end: int, text: str) -> _Change:
        return _Change(start, end, text, (self._start(node), self._end(node)))

    def _scalar(self, value: Any, replaced: Node) -> str:
        """Return a value in the quotes of the one that it replaces, if it is text."""
        quote = getattr(replaced, "style", None)
        if quote not in ("'", '"') or not isinstance(value, str):
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


def _first(node: Node) -> Node:
    """Return the first node of a collection: the first key or entry."""
    key, value = entries_of(node)[0]
    return key or value
