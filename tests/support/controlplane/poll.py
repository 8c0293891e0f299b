"""Waits for a condition, with a deadline."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

WITHIN = 90.0
"""Seconds. Only a failure takes as long, or a very busy machine."""


def until(condition: Callable[[], T], what: str, within: float = WITHIN, every: float = 0.4) -> T:
    """Call `condition` until it returns a true value, and return that value.

    The pauses grow with the time waited, up to `every` seconds: on a busy machine, each call takes
    CPU time from the process that it waits for.

    Raises:
        TimeoutError: it does not within `within` seconds; the message names `what`.
    """
    start = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - start
        if waited > within:
            raise TimeoutError(f"waited {within:.0f} s for {what}; last value: {value!r}")
        time.sleep(min(every, 0.02 + waited / 5))
    return value
