"""Paths to the fields of objects, as the API server prints them and as JSON pointers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

Path = tuple[str | int, ...]
"""The steps from the root of an object to a value: keys of mappings and indexes of lists."""

_NOT_IN_A_NAME = re.compile(r"[./\[\]]")
_STEP = re.compile(r"(?:^|\.)(?P<name>[^.\[]+)|\[(?P<entry>[^\]]*)\]")


def field_path(path: Iterable[str | int]) -> str:
    """Return a path in the API server's notation: ``spec.containers[0].image``."""
    text = ""
    for step in path:
        text = below(text, step)
    return text.removeprefix(".")


def below(path: str, step: str | int, *, in_brackets: bool = False) -> str:
    """Return the path of what is one step below ``path``.

    Indexes stand in brackets, and so do keys that do not read as one step: ``nvidia.com/gpu``.
    """
    if in_brackets or isinstance(step, int) or not step or _NOT_IN_A_NAME.search(step):
        return f"{path}[{step}]"
    return f"{path}.{step}"


def pointer(path: Path) -> str:
    """Return a path as a JSON pointer (RFC 6901)."""
    text = "/%s" * len(path) % path
    if text.count("/") == len(path) and "~" not in text:
        return text
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def steps(text: str) -> tuple[str, ...]:
    """Return the steps of a path in the API server's notation, or of a JSON pointer."""
    if text.startswith("/"):
        parts = text[1:].split("/")
        return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)
    return tuple(match["name"] or match["entry"] for match in _STEP.finditer(text))


def descend(value: Any, path: Iterable[str | int]) -> Any:
    """Return the value at a path, None where there is none."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and str(step).isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def text_at(value: Any, *path: str | int) -> str:
    """Return the string at a path; empty if there is none."""
    text = descend(value, path)
    return text if isinstance(text, str) else ""
