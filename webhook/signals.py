"""The signals by which Kubernetes, or a person, stops a process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine


class Signals:
    """The first signal requests a graceful stop, the second an immediate one."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(
                number, lambda: (self.second if self.first.is_set() else self.first).set()
            )

    async def unless_stopped(self, work: Coroutine[None, None, None]) -> bool:
        """Do the work, or cancel it at the first signal; return whether it is done."""
        task = asyncio.create_task(work)
        stopped = asyncio.create_task(self.first.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            return task.done()
        finally:
            for awaited in (task, stopped):
                awaited.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)
