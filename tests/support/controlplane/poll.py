"""Waits for a condition, with a deadline."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

WITHIN = 90.0
"""Seconds. Only a failure takes as long, or a very busy machine."""


def until(condition: Callable[[], T], what: str, within: float = WITHIN, every: float = 0.05) -> T:
    """Call `condition` until it returns a true value, and return that value.

    Raises:
        TimeoutError: it does not within `within` seconds; the message names `what`.
    """
    deadline = time.monotonic() + within
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {within:.0f} s for {what}; last value: {value!r}")
        time.sleep(every)
    return value
