"""Memory that is free, given back to the system."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


def give_back() -> None:
    """Give back what the C library keeps for the next who asks, where it is glibc.

    It gives back by itself what is free at the end of the heap only, so that one small piece in use
    keeps all before it (malloc_trim(3)). Takes microseconds where there is little to give, and some
    5 ms for what hundreds of connections leave.
    """
    if (trim := _trim()) is not None:
        trim(0)


@cache
def _trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, TypeError, AttributeError):
        # Another C library: musl, or that of another system.
        return None
