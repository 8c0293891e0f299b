"""Delays before a failed request is retried."""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """Delays that double from ``first`` to ``cap`` seconds, shortened by up to half at random.

    They start again after an attempt that lasted ``steady`` seconds. An attempt that fails sooner
    is not a success, even if its connection was established.
    """

    def __init__(
        self,
        first: float,
        cap: float,
        steady: float,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._first = first
        self._cap = cap
        self._steady = steady
        self._spread = spread
        self._failures = 0

    def after(self, lasted: float) -> float:
        """Return the seconds to wait after an attempt that lasted so many."""
        if lasted >= self._steady:
            self._failures = 0
        # Bounded, because 2.0**1024 is an error; the cap is reached long before.
        delay = min(self._cap, self._first * 2.0 ** min(self._failures, 60))
        self._failures += 1
        return delay * (1 - self._spread() / 2)


def spread(seconds: float) -> float:
    """Return the delay, extended by up to half at random: replicas must not retry together."""
    return seconds * (1 + random.random() / 2)  # noqa: S311 - spreads load
