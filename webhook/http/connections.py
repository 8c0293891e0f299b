"""The open connections of a listener: how many there may be, and which one makes room for another.

A TLS connection costs about 50 KiB before its first request, most of it in OpenSSL, so their number
is limited. An API server holds as many connections as it has admissions in flight. A client that
opens connections without using them must not keep an API server out: a listener that is full closes
an unused connection of the address that has the most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from webhook.metrics.admission import Rejection


@dataclass(frozen=True, slots=True)
class Limits:
    """How many connections a listener accepts, and how long it keeps an idle one."""

    connections: int
    per_address: int
    idle_seconds: float


REVIEWS = Limits(
    # 40 MiB, which leaves enough of a replica's memory limit to work with.
    connections=800,
    # Behind a proxy (konnectivity), all API servers have one address, with up to 200 admissions in
    # flight each (--max-mutating-requests-inflight).
    per_address=400,
    # An API server closes an idle connection after 90 s (Go's default transport). The listener
    # waits longer, because a POST on a connection that closes at that moment fails.
    idle_seconds=120.0,
)

MAX_REPLACED = 50
"""Connections a second that take the place of one of the same address. Each costs a handshake, a
millisecond of CPU: a client that opens connections in a loop must not use up a replica's core."""

OPERATIONS = Limits(connections=64, per_address=32, idle_seconds=15.0)
"""Kubelets open a connection for each probe. Prometheus can open one for each scrape."""


@dataclass(slots=True, eq=False)
class _Connection:
    handler: web.RequestHandler
    handshake: asyncio.Task[None] | None
    used_at: float = field(default_factory=time.monotonic)
    """When it was accepted, or its last request was answered."""
    served: bool = False


class Connections:
    """Connections by address. ``is_busy`` tells whether a connection waits for an answer."""

    def __init__(
        self,
        limits: Limits,
        rejected: Callable[[Rejection], None],
        is_busy: Callable[[web.RequestHandler], bool] = lambda _handler: False,
    ) -> None:
        self.limits = limits
        self.accepted = 0
        """How many have been accepted so far."""
        self._rejected = rejected
        self._is_busy = is_busy
        self._open: dict[str, dict[web.RequestHandler, _Connection]] = {}
        self._address_of: dict[web.RequestHandler, str] = {}
        self._replaced = 0
        self._replaced_since = 0.0

    def __len__(self) -> int:
        return len(self._address_of)

    def make_room(self, address: str) -> bool:
        """Return whether a connection of ``address`` may open; another may be closed for it."""
        own = len(self._open.get(address, ()))
        if own < self.limits.per_address:
            if len(self) < self.limits.connections:
                return True
            larger = [(len(held), other) for other, held in self._open.items() if len(held) > own]
            if any(self._evict(other) for _, other in sorted(larger, reverse=True)):
                return True
        if self._may_replace_own() and self._evict(address):
            return True
        self._rejected("too_many")
        return False

    def opened(
        self, address: str, handler: web.RequestHandler, handshake: asyncio.Task[None] | None
    ) -> None:
        self.accepted += 1
        self._address_of[handler] = address
        self._open.setdefault(address, {})[handler] = _Connection(handler, handshake)

    def established(self, handler: web.RequestHandler) -> None:
        """Note that the handshake is complete."""
        if (connection := self._find(handler)) is not None:
            connection.handshake = None

    def used(self, handler: web.RequestHandler) -> None:
        """Note that a request was answered."""
        if (connection := self._find(handler)) is not None:
            connection.used_at, connection.served = time.monotonic(), True

    def closed(self, handler: web.RequestHandler) -> None:
        address = self._address_of.pop(handler, None)
        if address is not None:
            of_address = self._open[address]
            del of_address[handler]
            if not of_address:
                del self._open[address]

    def _find(self, handler: web.RequestHandler) -> _Connection | None:
        address = self._address_of.get(handler)
        return None if address is None else self._open[address][handler]

    def _may_replace_own(self) -> bool:
        """Return whether a connection may take the place of one of the same address."""
        now = time.monotonic()
        if now - self._replaced_since >= 1:
            self._replaced_since, self._replaced = now, 0
        self._replaced += 1
        return self._replaced <= MAX_REPLACED

    def _evict(self, address: str) -> bool:
        """Close a connection of ``address``: one that was never used, or else the longest idle."""
        unused = (
            connection
            for connection in self._open.get(address, {}).values()
            if not self._is_busy(connection.handler)
        )
        evicted = min(
            unused, key=lambda connection: (connection.served, connection.used_at), default=None
        )
        if evicted is None:
            return False
        self.closed(evicted.handler)
        if evicted.handshake is not None:
            evicted.handshake.cancel()
        elif evicted.handler.transport is not None:
            evicted.handler.transport.abort()
        self._rejected("evicted")
        return True
