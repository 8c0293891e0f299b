"""The certificate that the listener serves, from the first that there is to the newest."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from ssl import SSLContext

from certs.reload import Outcome, Poll, ServingContext
from certs.source import Source
from webhook.logs import event

_log = logging.getLogger("gpufence")


class ServedCertificate:
    """Serves a source's certificate; ``now`` returns the time."""

    def __init__(self, source: Source, now: Callable[[], datetime]) -> None:
        self._source = source
        self._now = now
        self._context: ServingContext | None = None
        self._last: Poll | None = None

    def load(self) -> SSLContext:
        """Return the listener's context; raises CertificateError where there is no usable pair."""
        if self._context is None:
            self._context = ServingContext(self._source, self._now())
        return self._context.ssl_context

    def poll(self) -> None:
        """Look at the source, and say what is new."""
        if self._context is None:
            return
        poll = self._context.poll(self._now())
        if poll != self._last and poll.outcome is not Outcome.UNCHANGED:
            refused = poll.outcome is Outcome.REFUSED
            level = logging.WARNING if refused else logging.INFO
            event(_log, level, f"certificate {poll.outcome}", detail=poll.reason)
        self._last = poll

    @property
    def expires(self) -> datetime | None:
        """End of the life of the certificate that is served, if one is."""
        return self._context.expires if self._context else None

    def expiry_timestamp(self) -> float:
        """Return it in seconds of the epoch, and 0 where none is served."""
        return self.expires.timestamp() if self.expires else 0.0

    def unready(self) -> str:
        """Return why no requests should be sent here, or nothing if they should."""
        if self.expires is not None and self.expires <= self._now():
            return f"the serving certificate expired at {self.expires.isoformat()}"
        return ""
