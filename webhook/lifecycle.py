"""Where a server stands between its start and its end, and what it still has to finish."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime


class Lifecycle:
    """Starting, serving, draining; and the requests under way."""

    def __init__(self) -> None:
        self.serving = False
        self.draining = False
        self.under_way = 0
        """How many requests are being answered."""
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request as under way."""
        self.under_way += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.under_way -= 1
            if not self.under_way:
                self._idle.set()

    async def finished(self) -> None:
        """Return once no request is under way."""
        await self._idle.wait()

    def unready(self, expires: datetime, now: datetime) -> str:
        """Return why no requests should be sent here, or nothing if they should.

        ``expires`` is the end of the serving certificate: after it, no call gets through.
        """
        if self.draining:
            return "shutting down"
        if expires <= now:
            return f"the serving certificate expired at {expires.isoformat()}"
        return "" if self.serving else "starting"
