"""Numbers in sentences."""

from __future__ import annotations


def counted(count: int, what: str) -> str:
    """Return a number of things: ``1 node``, ``1,200 nodes``."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
