"""Waiting for something to become true, with a deadline and without a fixed sleep."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def until(look: Callable[[], T], what: str, within: float = 30.0, every: float = 0.05) -> T:
    """Call `look` until it returns something true, and return that.

    Raises:
        TimeoutError: it did not in `within` seconds; the message names `what` was waited for.
    """
    deadline = time.monotonic() + within
    while not (seen := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {within:.0f} s in vain for {what}; last seen: {seen!r}")
        time.sleep(every)
    return seen
