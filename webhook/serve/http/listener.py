"""A listening socket: accepts connections within limits, and serves HTTP on them.

A TLS connection costs about 50 KiB before its first request, most of it in OpenSSL, so their number
is limited when they are accepted, before the handshake. The server of asyncio reports a connection
only after the handshake, and the server of uvloop reads before a protocol can start TLS itself, so
the listener accepts connections on its own. An API server holds as many connections as it has
admissions in flight, and a client that opens connections without using them must not keep it out: a
listener that is full closes an unused connection of the address that has the most.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from ssl import SSLContext, SSLError
from time import monotonic
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from webhook.logs import event, set_fields
from webhook.serve.metrics.replica import Rejection

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
"""Answers every request of a listener, whatever its path."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many connections a listener accepts, and how long it keeps an idle one."""

    connections: int
    idle_seconds: float


REVIEWS = Limits(
    # 40 MiB, which leaves enough of a replica's memory limit to work with.
    connections=800,
    # An API server closes an idle connection after 90 s (Go's default transport). The listener
    # waits longer, because a POST on a connection that closes at that moment fails.
    idle_seconds=120.0,
)

OPERATIONS = Limits(connections=64, idle_seconds=15.0)
"""Kubelets open a connection for each probe. Prometheus can open one for each scrape."""

ACCEPTS_PER_TURN = 64
"""Connections that are accepted in one turn of the event loop. A turn answers all waiting requests,
which takes long if there are hundreds. With 200 busy clients and one connection a turn, some of 200
new connections had no answer after 30 s. With 64 a turn, all had one within 4 s (0.3 ms a request,
two loaded cores). With more, open connections would wait for the handshakes of new ones."""

# Connections that the kernel completes and queues: more than a listener accepts, since it drops the
# SYN of the next one, and the client retries only after a second.
_BACKLOG = 1024

_HANDSHAKE_SECONDS = 10.0

# The wait after the process has run out of file descriptors.
_EXHAUSTED_SECONDS = 0.1

# How often the memory of closed connections is returned to the system. uvloop reserves 256 KiB for
# each, between which OpenSSL's small allocations come to lie: 25 times 700 handshakes that were
# abandoned left 167 MiB, and more with each round. With this, 14 MiB.
_TRIM_SECONDS = 1.0

# By itself, glibc returns only what is free at the end of the heap, so that one small allocation
# keeps everything before it (malloc_trim(3)). A call takes microseconds if there is little to
# return, and about 5 ms after hundreds of connections. Other C libraries have no such function.
_malloc_trim: Callable[[int], Any] = getattr(ctypes.CDLL(None), "malloc_trim", lambda _pad: None)

# How long to wait for handlers that do not end; the drain has waited for all others.
_SHUTDOWN_SECONDS = 1.0

_log = logging.getLogger("gpufence")


class ListenError(Exception):
    """The process cannot listen on an address: which one, why, and what to do."""


def listen(host: str, port: int, option: str) -> socket.socket:
    """Return a listening socket. Port 0 selects a free port (``port_of``).

    Raises:
        ListenError: the address is in use or invalid; ``option`` is the flag to change.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        # create_server adds the address to the text. A name that cannot be resolved has no errno.
        number = error.errno or 0
        problem = os.strerror(number) if number > 0 else error.strerror or str(error)
        raise ListenError(
            f"cannot listen on {host}:{port} ({problem}). "
            f"Choose another --{option}, or 0 for a free port."
        ) from error


def port_of(listening: socket.socket) -> int:
    """Return the port that was bound."""
    port: int = listening.getsockname()[1]
    return port


@dataclass(slots=True, eq=False)
class _Connection:
    address: str
    handshake: asyncio.Task[None]
    used_at: float
    """When it was accepted, or its last request was answered."""
    served: bool = False
    request: web.BaseRequest | None = None
    """The request that is being answered."""

    @property
    def is_busy(self) -> bool:
        """Whether a request whose body is complete waits for its answer."""
        return self.request is not None and self.request.content.is_eof()


class Listener(web.Server):
    """Serves a handler on a listening socket (``listen``), which ``close`` closes.

    ``rejected`` is called for each connection that is rejected.
    """

    def __init__(
        self,
        handler: Handler,
        limits: Limits,
        rejected: Callable[[Rejection], None] = lambda _reason: None,
    ) -> None:
        super().__init__(
            self._answer,
            access_log=None,
            # The edge rejects compressed bodies; to decompress them first would be the attack.
            auto_decompress=False,
            # A client that does not finish its headers is disconnected after the same time.
            keepalive_timeout=limits.idle_seconds,
            # How long to read and discard the rest of a rejected body, so that its sender sees the
            # response.
            lingering_time=5.0,
        )
        logging.getLogger("aiohttp.server").addFilter(demote_bad_http)
        self._handler = handler
        self._limits = limits
        self._rejected = rejected
        self._open: dict[web.RequestHandler, _Connection] = {}
        self._has_closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._socket: socket.socket | None = None

    def start(self, listening: socket.socket, tls: Callable[[], SSLContext] | None = None) -> None:
        """Accept connections from now on; ``tls`` returns the context of each."""
        listening.setblocking(False)
        self._socket = listening
        self._spawn(self._accept(listening, tls))
        self._spawn(self._trim_memory())

    async def close(self) -> None:
        """Stop listening, close idle connections, and wait for the last responses to be sent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
        self.pre_shutdown()
        await self.shutdown(_SHUTDOWN_SECONDS)

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        super().connection_lost(handler, exc)
        self._forget(handler)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = self._open.get(request.protocol)
        if connection is None:
            return await self._handler(request)
        connection.request = request
        try:
            return await self._handler(request)
        finally:
            connection.request = None
            connection.used_at, connection.served = monotonic(), True

    async def _accept(self, listening: socket.socket, tls: Callable[[], SSLContext] | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._take(*await loop.sock_accept(listening), tls)
                for _ in range(ACCEPTS_PER_TURN - 1):
                    self._take(*listening.accept(), tls)
            except BlockingIOError:
                # No other connection waits.
                continue
            except OSError as error:
                problem = os.strerror(error.errno or 0)
                event(_log, logging.WARNING, "cannot accept connections", problem=problem)
                await asyncio.sleep(_EXHAUSTED_SECONDS)

    def _take(
        self, accepted: socket.socket, peer: tuple[Any, ...], tls: Callable[[], SSLContext] | None
    ) -> None:
        address = str(peer[0])
        if len(self._open) >= self._limits.connections and not self._make_room(address):
            self._rejected("too_many")
            accepted.close()
            return
        handler = self()
        # It counts from now on, not from when its task runs.
        handshake = self._spawn(self._connect(accepted, handler, tls))
        self._open[handler] = _Connection(address, handshake, monotonic())

    async def _connect(
        self,
        accepted: socket.socket,
        handler: web.RequestHandler,
        tls: Callable[[], SSLContext] | None,
    ) -> None:
        """Complete the handshake, and pass the connection to its handler."""
        accepted.setblocking(False)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: handler,
                accepted,
                ssl=tls() if tls else None,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS if tls else None,
            )
        except (OSError, SSLError):
            accepted.close()
            self._forget(handler)
            self._rejected("handshake")

    def _make_room(self, address: str) -> bool:
        """Close a connection for one of ``address``: of an address that has more, or of its own."""
        count = Counter(connection.address for connection in self._open.values())
        larger = [other for other, held in count.most_common() if held > count[address]]
        return any(self._evict(other) for other in [*larger, address])

    def _evict(self, address: str) -> bool:
        """Close a connection of ``address``: one that was never used, or else the longest idle."""
        idle = [
            (handler, connection)
            for handler, connection in self._open.items()
            if connection.address == address and not connection.is_busy
        ]
        if not idle:
            return False
        handler, connection = min(idle, key=lambda each: (each[1].served, each[1].used_at))
        self._forget(handler)
        if not connection.handshake.done():
            connection.handshake.cancel()
        elif handler.transport is not None:
            handler.transport.abort()
        self._rejected("evicted")
        return True

    def _forget(self, handler: web.RequestHandler) -> None:
        self._open.pop(handler, None)
        self._has_closed = True

    async def _trim_memory(self) -> None:
        """Return the memory of closed connections to the system."""
        while True:
            await asyncio.sleep(_TRIM_SECONDS)
            if self._has_closed:
                self._has_closed = False
                _malloc_trim(0)

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def demote_bad_http(record: logging.LogRecord) -> bool:
    """Log a request that is not HTTP, or a client that hangs up, without a traceback.

    Any client can cause them at any rate, and the HTTP library logs them as errors, with the
    address of the client in the name of the event.
    """
    problem = record.exc_info[1] if record.exc_info else None
    client = (
        {"client": str(record.args[0])} if isinstance(record.args, tuple) and record.args else {}
    )
    if client:
        record.msg, record.args = "request failed", ()
        set_fields(record, **client)
    if isinstance(problem, (HttpProcessingError, web.RequestPayloadError, ConnectionError)):
        # The text quotes the request, over several lines.
        record.msg = "bad HTTP"
        set_fields(record, **client, problem=" ".join(str(problem).split())[:200])
        record.levelno, record.levelname = logging.INFO, "INFO"
        record.exc_info = record.exc_text = None
    return True
