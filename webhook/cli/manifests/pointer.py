"""Paths within a document: as JSON pointers, and to put something in place of what is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webhook.cli.manifests.objects import Path


def pointer(path: Path) -> str:
    """Return the JSON pointer (RFC 6901) of a path, empty for the root."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)


def replaced(root: Any, replacements: Mapping[Path, Any]) -> Any:
    """Return ``root`` with what is at each path replaced; only what leads there is copied."""
    if () in replacements:
        return replacements[()]
    copies: dict[Path, Any] = {(): root.copy()} if replacements else {(): root}
    for path, replacement in replacements.items():
        for depth in range(1, len(path)):
            parent, step, here = copies[path[: depth - 1]], path[depth - 1], path[:depth]
            if here not in copies:
                copies[here] = parent[step] = parent[step].copy()
        copies[path[:-1]][path[-1]] = replacement
    return copies[()]
