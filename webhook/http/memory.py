"""Returning free memory to the system."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


def trim_memory() -> None:
    """Return what glibc keeps for later allocations; do nothing with another C library.

    By itself, glibc returns only what is free at the end of the heap, so that one small allocation
    keeps everything before it (malloc_trim(3)). This takes microseconds if there is little to
    return, and about 5 ms after hundreds of connections.
    """
    if (trim := _trim()) is not None:
        trim(0)


@cache
def _trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, TypeError, AttributeError):
        return None
