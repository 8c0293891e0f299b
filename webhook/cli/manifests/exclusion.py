"""``--exclude``: what of a folder is no manifest of anybody's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePath


class Exclusion:
    """Patterns of files and folders; a folder that is left out is left out with all that is in it.

    A pattern without a slash is for names, at any depth: ``charts``, ``*.tmpl.yaml``. One with a
    slash is for paths, from the folder that is searched: ``overlays/*/dev``; ``**`` in it stands
    for any number of folders. ``*``, ``?`` and ``[...]`` stand for characters of one name.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [_parts(pattern) for pattern in patterns]

    def __contains__(self, path: str) -> bool:
        """Tell whether ``path``, relative to the folder that is searched, is left out."""
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
