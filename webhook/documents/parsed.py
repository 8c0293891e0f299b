"""What the readers return, and the depth to which they read."""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.documents.errors import ManifestError

MAX_DEPTH = 100
"""Deeper nesting is an error: rules, diff and output recurse."""

DUPLICATE_CURE = "Remove one of the two: kubectl uses the second and drops the first"

TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
TOO_DEEP_CURE = "Check the tool that wrote it: no object of the Kubernetes API nests so deep"


class Parsed(msgspec.Struct):
    """A document's value or what is wrong with it, and where it and its items start.

    Lines count from 1, within the text. ``span`` is the part of the text that holds the value, if
    that is not all of it. ``duplicate`` is about the first key that is set twice in one mapping:
    the last value counts, as for kubectl.
    """

    value: Any
    line: int
    item_lines: list[int] = []
    error: ManifestError | None = None
    duplicate: ManifestError | None = None
    span: tuple[int, int] | None = None
