"""Where a server stands between its start and its end, and what it still has to finish."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

MOST_UNDER_WAY = 200
"""What one API server has under way of its own requests that change something, by default
(``--max-mutating-requests-inflight``)."""


class Lifecycle:
    """Starting, serving, draining; and the requests under way, ``most`` of them at a time."""

    def __init__(self, most: int = MOST_UNDER_WAY) -> None:
        self.most = most
        self.serving = False
        self.draining = False
        self.under_way = 0
        """How many requests are being answered."""
        self.arriving = 0
        """Bytes of those requests' bodies that are not here as a whole yet."""
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

    @property
    def full(self) -> bool:
        """Whether so many requests are under way that another one is better sent elsewhere."""
        return self.under_way >= self.most

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
