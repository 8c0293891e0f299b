"""The serving certificate of the listener, which is replaced while it serves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from ssl import SSLContext

from certs.reload import Outcome, Poll, ServingContext, Source
from webhook.logs import event

_NEVER = datetime.max.replace(tzinfo=UTC)

_log = logging.getLogger("gpufence")


class ServedCertificate:
    """Serves a source's certificate, to clients with a certificate of a CA if one is named.

    ``now`` returns the time; ``rejected`` is called each time the source has no usable
    certificate.
    """

    def __init__(
        self,
        source: Source,
        now: Callable[[], datetime],
        client_ca_file: Path | None = None,
        rejected: Callable[[], None] = lambda: None,
    ) -> None:
        self.problem = ""
        """Why the newest certificate is not served; empty if it is."""
        self._source = source
        self._now = now
        self._client_ca_file = client_ca_file
        self._rejected = rejected
        self._context: ServingContext | None = None
        self._last: Poll | None = None

    def load(self) -> SSLContext:
        """Return the listener's context; raises CertificateError without a usable pair."""
        if self._context is None:
            self._context = ServingContext(self._source, self._client_ca_file)
        return self._context.ssl_context

    def poll(self) -> None:
        """Read the source, and log what changed."""
        if self._context is None:
            return
        poll = self._context.poll(self._now())
        self.problem = poll.reason if poll.outcome is Outcome.REJECTED else ""
        if self.problem:
            self._rejected()
        if poll != self._last and poll.outcome is not Outcome.UNCHANGED:
            rejected = poll.outcome is Outcome.REJECTED
            level = logging.WARNING if rejected else logging.INFO
            event(_log, level, f"certificate {poll.outcome}", detail=poll.reason)
        self._last = poll

    def chain(self) -> bytes:
        """Return PEM of the chain that is served; empty if nothing is served yet."""
        return self._context.chain if self._context else b""

    def invalid(self) -> str:
        """Return why the served certificate is not valid now; empty if it is valid."""
        return self._context.invalid(self._now()) if self._context else ""

    @property
    def expires(self) -> datetime:
        """The expiry of the served certificate; a date that never comes without one."""
        return self._context.expires if self._context else _NEVER
