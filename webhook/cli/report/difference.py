"""The difference of two objects, line by line as YAML.

Both are walked together as trees. A comparison by line would mistake similar lines of neighboring
entries for each other, and take minutes for the largest objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
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
    lines = _Lines()
    if _are_alike(before, after):
        _compare(before, after, "", "", lines)
    elif before != after:
        lines.changed("-", yaml_lines(before))
        lines.changed("+", yaml_lines(after))
    return lines.shown


class _Lines:
    """The lines that differ and those around them. Other lines are never written as YAML."""

    def __init__(self) -> None:
        self.shown: list[Marked] = []
        self._below = CONTEXT
        """The number of lines shown since the last difference."""
        self._waiting: list[Callable[[], list[str]]] = []
        """Unchanged lines since then, which are shown if a difference follows soon."""

    def same(self, write: Callable[[], list[str]]) -> None:
        if self._below == CONTEXT:
            self._waiting.append(write)
            return
        texts = write()
        near = texts[: CONTEXT - self._below]
        self.shown += [Marked(" ", text) for text in near]
        self._below += len(near)
        if rest := texts[len(near) :]:
            self._waiting.append(lambda: rest)

    def changed(self, mark: Mark, texts: Iterable[str]) -> None:
        near: list[str] = []
        while self._waiting and len(near) < CONTEXT:
            near = self._waiting.pop()() + near
        if self._waiting or len(near) > CONTEXT:
            self.shown.append(Marked("@", ""))
        self.shown += [Marked(" ", text) for text in near[-CONTEXT:]]
        self.shown += [Marked(mark, text) for text in texts]
        self._waiting.clear()
        self._below = 0


def _are_alike(before: Any, after: Any) -> bool:
    """Return whether both are non-empty mappings, or both non-empty lists."""
    return bool(before and after) and (
        (isinstance(before, dict) and isinstance(after, dict))
        or (isinstance(before, list) and isinstance(after, list))
    )


def _compare(before: Any, after: Any, indent: str, start: str, lines: _Lines) -> None:
    """Add the lines of two collections of the same type at ``indent``.

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
            lines.same(partial(entry_lines, key, new, indent, start))
        elif _are_alike(old, new):
            below = f"{indent}  " if key is None or isinstance(new, dict) else indent
            if key is not None:
                lines.same(partial(key_lines, key, indent, start))
            _compare(old, new, below, below if key is not None else f"{start}- ", lines)
        else:
            if old is not _ABSENT:
                lines.changed("-", entry_lines(key, old, indent, start))
            if new is not _ABSENT:
                lines.changed("+", entry_lines(key, new, indent, start))
        start = indent
