"""What the readers return, and the bound that they keep."""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.cli.manifests.errors import ManifestError

MAX_DEPTH = 100
"""Nesting beyond this is refused: rules, diff and output recurse."""

TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
TOO_DEEP_CURE = "Look at what wrote it: no object of the Kubernetes API is nested so deep"


class Parsed(msgspec.Struct):
    """A document's value or what is wrong with it, and where it and its items start.

    Lines count from 1, within the text; ``span`` is the part of it that holds the value, where that
    is not all.
    """

    value: Any
    line: int
    item_lines: list[int] = []
    error: ManifestError | None = None
    span: tuple[int, int] | None = None
