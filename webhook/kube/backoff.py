"""How long to wait before a lost connection is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """Delays that double from ``first`` to ``cap`` seconds, shortened by up to half at random.

    After an attempt that lasted ``steady`` seconds, they begin anew: one that breaks at once every
    time is not taken for a success.
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
        """Return the seconds to wait after an attempt that has lasted so many."""
        if lasted >= self._steady:
            self._failures = 0
        # Bounded, since 2.0**1024 is an error; a cap is reached long before.
        delay = min(self._cap, self._first * 2.0 ** min(self._failures, 60))
        self._failures += 1
        return delay * (1 - self._spread() / 2)
