"""SIGTERM and SIGINT as events, and waits that end early."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")


class Signals:
    """The first signal requests a graceful stop, the second an immediate one."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received)

    async def unless_stopped(self, work: Coroutine[None, None, T]) -> T | None:
        """Return the result of ``work``, or cancel it at the first signal and return None."""
        task = asyncio.create_task(work)
        stopped = asyncio.create_task(self.first.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            for awaited in (task, stopped):
                awaited.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)

    def _received(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


async def within(seconds: float, wait: Callable[[], Awaitable[object]]) -> bool:
    """Wait for something, and return whether it happened within the time limit."""
    try:
        async with asyncio.timeout(seconds):
            await wait()
    except TimeoutError:
        return False
    return True
