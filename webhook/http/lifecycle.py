"""The phases of a replica (starting, serving, draining), and the requests that it must finish."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Lifecycle:
    """The phase of a replica, and the number of its open requests."""

    def __init__(self) -> None:
        self.serving = False
        self.draining = False
        self.open_requests = 0
        """Requests that are not answered yet, including those whose body is still arriving."""
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request as open."""
        self.open_requests += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.open_requests -= 1
            if not self.open_requests:
                self._idle.set()

    async def finished(self) -> None:
        """Return once no request is open."""
        await self._idle.wait()

    def unready(self) -> str:
        """Return why clients should not send requests here; empty if they should."""
        if self.draining:
            return "shutting down"
        return "" if self.serving else "starting"
