"""The phases of a replica (starting, serving, draining), and the requests that it must finish."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager


class _Requests:
    """Requests that are not answered yet: each is a ``with`` block."""

    def __init__(self) -> None:
        self.count = 0
        self.idle = asyncio.Event()
        self.idle.set()

    def __enter__(self) -> None:
        self.count += 1
        self.idle.clear()

    def __exit__(self, *_error: object) -> None:
        self.count -= 1
        if not self.count:
            self.idle.set()


class Lifecycle:
    """The phase of a replica, and the number of its open requests."""

    def __init__(self) -> None:
        self.serving = False
        self.draining = False
        self._requests = _Requests()

    @property
    def open_requests(self) -> int:
        """Requests that are not answered yet, including those whose body is still arriving."""
        return self._requests.count

    def request(self) -> AbstractContextManager[None]:
        """Count a request as open in a ``with`` block."""
        return self._requests

    async def finished(self) -> None:
        """Return once no request is open."""
        await self._requests.idle.wait()

    def unready(self) -> str:
        """Return why clients should not send requests here; empty if they should."""
        if self.draining:
            return "shutting down"
        return "" if self.serving else "starting"
