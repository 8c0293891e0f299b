"""What an object has more than it had, line by line as YAML.

Both sides are walked together, as trees: comparing them line by line would take an entry whose last
line is like that of its neighbour for the neighbour's end, and minutes for the largest objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

from webhook.cli.manifests.yaml_writer import entry_lines, key_lines, yaml_lines

Mark = Literal[" ", "+", "-", "@"]

CONTEXT = 3
_ABSENT = object()


class Marked(NamedTuple):
    """A line that stays, is added or is removed; ``@`` stands for lines that are left out."""

    mark: Mark
    text: str


def difference(before: Any, after: Any) -> Iterator[Marked]:
    """Yield the lines in which two objects differ, with up to three around them.

    Lists are compared entry by entry from the front, which is right for what setters do: they
    append.
    """
    lines: list[Marked] = []
    if _are_alike(before, after):
        _compare(before, after, "", "", lines)
    elif before != after:
        _add("-", yaml_lines(before), lines)
        _add("+", yaml_lines(after), lines)
    near = {
        near
        for index, line in enumerate(lines)
        if line.mark != " "
        for near in range(index - CONTEXT, index + CONTEXT + 1)
    }
    previous = -1
    for index, line in enumerate(lines):
        if index in near:
            if index != previous + 1:
                yield Marked("@", "")
            yield line
            previous = index


def _are_alike(before: Any, after: Any) -> bool:
    """Tell whether both are mappings, or both lists, with something in them."""
    return bool(before and after) and (
        (isinstance(before, dict) and isinstance(after, dict))
        or (isinstance(before, list) and isinstance(after, list))
    )


def _compare(before: Any, after: Any, indent: str, start: str, lines: list[Marked]) -> None:
    """Append the lines of two collections that are alike and stand at ``indent``.

    The first of them starts with ``start``.
    """
    pairs: Iterable[tuple[str | None, Any, Any]]
    if isinstance(after, dict):
        keys = [*after, *(key for key in before if key not in after)]
        pairs = ((key, before.get(key, _ABSENT), after.get(key, _ABSENT)) for key in keys)
    else:
        both = zip_longest(before, after, fillvalue=_ABSENT)
        pairs = ((None, old, new) for old, new in both)
    for key, old, new in pairs:
        if _are_alike(old, new):
            below = f"{indent}  " if key is None or isinstance(new, dict) else indent
            if key is not None:
                _add(" ", key_lines(key, indent, start), lines)
            _compare(old, new, below, below if key is not None else f"{start}- ", lines)
        elif type(old) is type(new) and old == new:
            _add(" ", entry_lines(key, new, indent, start), lines)
        else:
            if old is not _ABSENT:
                _add("-", entry_lines(key, old, indent, start), lines)
            if new is not _ABSENT:
                _add("+", entry_lines(key, new, indent, start), lines)
        start = indent


def _add(mark: Mark, texts: Iterable[str], lines: list[Marked]) -> None:
    lines += [Marked(mark, text) for text in texts]
