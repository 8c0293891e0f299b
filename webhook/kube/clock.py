"""The time of an API server, which its responses carry in the header Date."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime


class ServerClock:
    """The time of the API server that last responded; before that, the time of this machine.

    Certificates are for API servers, so they are judged by the time of an API server: the clock of
    this machine may be wrong.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._observed: tuple[datetime, float] | None = None

    def observe(self, date: str) -> None:
        """Set the time from a Date header (RFC 9110, 6.6.1), which has whole seconds."""
        try:
            observed = parsedate_to_datetime(date)
        except ValueError:
            return
        if observed.tzinfo:
            self._observed = observed, self._monotonic()

    def now(self) -> datetime:
        """Return the time of the API server, or of this machine before the first response."""
        return self.server_time() or self._wall()

    def server_time(self) -> datetime | None:
        """Return the time of the API server; None before its first response."""
        if self._observed is None:
            return None
        observed, at = self._observed
        return observed + timedelta(seconds=self._monotonic() - at)
