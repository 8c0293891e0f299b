"""The difference of two objects, line by line as YAML.

Both are walked together as trees. A comparison by line would mistake similar lines of neighboring
entries for each other, and take minutes for the largest objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

from webhook.cli.yaml_writer import entry_lines, key_lines, yaml_lines

Mark = Literal[" ", "+", "-", "@"]

CONTEXT = 3
_ABSENT = object()


class Marked(NamedTuple):
    """A line that is unchanged, added or removed; ``@`` stands for omitted lines."""

    mark: Mark
    text: str


def difference(before: Any, after: Any) -> list[Marked]:
    """Return the lines in which two objects differ, with up to three around them.

    Lists are compared entry by entry from the front, which fits mutations, because they append.
    """
    lines: list[Marked] = []
    if _are_alike(before, after):
        lines += _compared(before, after, "", "")
    elif before != after:
        lines += _marked("-", yaml_lines(before))
        lines += _marked("+", yaml_lines(after))
    changes = [number for number, line in enumerate(lines) if line.mark != " "]
    shown: list[Marked] = []
    end = 0
    for number in changes:
        start = max(end, number - CONTEXT)
        if start > end:
            shown.append(Marked("@", ""))
        shown += lines[start : number + CONTEXT + 1]
        end = max(end, number + CONTEXT + 1)
    return shown


def _are_alike(before: Any, after: Any) -> bool:
    """Return whether both are non-empty mappings, or both non-empty lists."""
    kinds = {type(before), type(after)}
    return bool(before and after) and (kinds == {dict} or kinds == {list})


def _compared(before: Any, after: Any, indent: str, start: str) -> Iterator[Marked]:
    """Yield the lines of two collections of the same type at ``indent``.

    The first line starts with ``start``.
    """
    pairs: Iterable[tuple[str | None, Any, Any]]
    if isinstance(after, dict):
        keys = [*after, *(key for key in before if key not in after)]
        pairs = ((key, before.get(key, _ABSENT), after.get(key, _ABSENT)) for key in keys)
    else:
        both = zip_longest(before, after, fillvalue=_ABSENT)
        pairs = ((None, old, new) for old, new in both)
    for key, old, new in pairs:
        if old is new or (type(old) is type(new) and old == new):
            yield from _marked(" ", entry_lines(key, new, indent, start))
        elif key is None and _are_alike(old, new):
            yield from _compared(old, new, f"{indent}  ", f"{start}- ")
        elif key is not None and _are_alike(old, new):
            yield from _marked(" ", key_lines(key, indent, start))
            below = f"{indent}  " if isinstance(new, dict) else indent
            yield from _compared(old, new, below, below)
        else:
            if old is not _ABSENT:
                yield from _marked("-", entry_lines(key, old, indent, start))
            if new is not _ABSENT:
                yield from _marked("+", entry_lines(key, new, indent, start))
        start = indent


def _marked(mark: Mark, texts: Iterable[str]) -> Iterator[Marked]:
    return (Marked(mark, text) for text in texts)
