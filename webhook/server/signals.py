"""SIGTERM and SIGINT as events, and waiting that has an end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable


class Signals:
    """The first signal asks for an end, the second for a quick one.

    So does the end of ``lifeline``, a descriptor that is open for as long as somebody else lives.
    """

    def __init__(self, lifeline: int | None = None) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._caught)
        if lifeline is not None:
            loop.add_reader(lifeline, self._left_alone, lifeline)

    def _left_alone(self, lifeline: int) -> None:
        asyncio.get_running_loop().remove_reader(lifeline)
        self.first.set()

    def _caught(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


async def within(seconds: float, what: Callable[[], Awaitable[object]]) -> bool:
    """Wait for something, but not longer; tell whether it came."""
    try:
        async with asyncio.timeout(seconds):
            await what()
    except TimeoutError:
        return False
    return True
