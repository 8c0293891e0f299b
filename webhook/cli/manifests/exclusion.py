"""``--exclude``: files and directories to skip."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePath


class Exclusion:
    """Patterns of files and directories; an excluded directory is skipped with all its content.

    A pattern without a slash matches names at any depth: ``charts``, ``*.tmpl.yaml``. A pattern
    with a slash matches paths relative to the searched directory: ``overlays/*/dev``. ``**`` stands
    for any number of directories. ``*``, ``?`` and ``[...]`` match characters of one name.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [_parts(pattern) for pattern in patterns]

    def __contains__(self, path: str) -> bool:
        """Return whether ``path``, relative to the searched directory, is excluded."""
        if not self._patterns:
            return False
        parts = PurePath(path).parts
        return any(
            _match(parts[:length], pattern)
            for pattern in self._patterns
            for length in range(1, len(parts) + 1)
        )


NOTHING = Exclusion(())


def _parts(pattern: str) -> tuple[str, ...]:
    pattern = pattern.removeprefix("./").rstrip("/")
    at_any_depth = () if "/" in pattern else ("**",)
    return (*at_any_depth, *pattern.lstrip("/").split("/"))


def _match(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_match(parts[start:], pattern[1:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _match(parts[1:], pattern[1:])
