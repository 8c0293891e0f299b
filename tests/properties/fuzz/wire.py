"""A connection to the webhook without a socket: bytes in, bytes out, in one process.

So coverage is seen and an input costs a fraction of a millisecond.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from policies.policy import Policy
from webhook.serve.admission.handler import Admission
from webhook.serve.http.edge import Edge
from webhook.serve.metrics.replica import Metrics

_TODAY = datetime(2026, 11, 21, tzinfo=UTC).date()

_TURNS = 200
"""Turns of the loop that a handler gets. One that has all its bytes needs a tenth of them."""


class Wire(asyncio.Transport):
    """The server's end of a connection, which records the output."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 4711)})
        self.written = bytearray()
        self._closing = False

    def write(self, data: Any) -> None:
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def close(self) -> None:
        self._closing = True

    abort = close

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        """The bytes are here already."""

    def resume_reading(self) -> None:
        """The bytes are here already."""


class Webhook:
    """The HTTP edge and all behind it, with one policy."""

    def __init__(self, policy: Policy) -> None:
        self._loop = asyncio.new_event_loop()
        metrics = Metrics(policy, "fuzz")
        admission = Admission(policy, metrics, lambda: _TODAY)
        edge = Edge(admission, metrics, timeout_seconds=10, followed="gpufence")
        self._server = web.Server(edge.handle, loop=self._loop, access_log=None)

    def exchange(self, data: bytes) -> bytes:
        """Send the bytes over one connection, disconnect, and return the response."""
        return self._loop.run_until_complete(self._exchange(data))

    def close(self) -> None:
        self._loop.run_until_complete(self._server.shutdown())
        self._loop.close()

    async def _exchange(self, data: bytes) -> bytes:
        wire, protocol = Wire(), self._server()
        protocol.connection_made(wire)
        protocol.data_received(data)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
            if wire.is_closing() or _is_whole(wire.written):
                break
        protocol.connection_lost(None)
        # The tasks that the disconnect cancels end in the next turns.
        for _ in range(3):
            await asyncio.sleep(0)
        return bytes(wire.written)


def _is_whole(written: bytearray) -> bool:
    head, blank, body = bytes(written).partition(b"\r\n\r\n")
    _, found, length = head.lower().partition(b"content-length: ")
    return bool(blank and found) and len(body) >= int(length.partition(b"\r\n")[0])
