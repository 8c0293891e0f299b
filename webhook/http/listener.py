"""Listening sockets: accepting connections, serving HTTP on them, and closing them."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine
from ssl import SSLContext, SSLError
from typing import Any

from aiohttp import web

from webhook.http.bad_requests import log_bad_http_as_info
from webhook.http.connections import REVIEWS, Connections, Limits
from webhook.http.memory import trim_memory
from webhook.logs import event
from webhook.metrics.admission import Rejection

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
"""Answers every request of a listener, whatever its path."""

ACCEPTS_PER_TURN = 64
"""Connections that are accepted in one turn of the event loop. A turn answers every request that
waits, which takes long if there are hundreds: with one connection a turn, new connections would
wait for seconds. With more, the open connections would wait for the handshakes."""

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

# How long to wait for handlers that do not end; the drain has waited for all others.
_SHUTDOWN_SECONDS = 1.0

_log = logging.getLogger("gpufence")


class ListenError(Exception):
    """The process cannot listen on an address: which one, why, and what to do."""


class Listeners:
    """The listeners of a replica. ``rejected`` is called for each connection that is rejected."""

    def __init__(self, rejected: Callable[[Rejection], None]) -> None:
        log_bad_http_as_info()
        self._rejected = rejected
        self._runners: list[web.BaseRunner] = []

    async def serve(
        self,
        handler: Handler,
        listening: socket.socket,
        ssl_context: SSLContext | None = None,
        *,
        limits: Limits = REVIEWS,
        is_busy: Callable[[web.RequestHandler], bool] = lambda _handler: False,
    ) -> None:
        """Serve on a listening socket (``listen``), which ``close`` closes.

        A full listener closes connections to make room for others, except those that are busy.
        """
        connections = Connections(limits, self._rejected, is_busy)
        server = Server(handler, connections)
        runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_SECONDS)
        await runner.setup()
        self._runners.append(runner)
        await _Site(runner, server, connections, listening, ssl_context, self._rejected).start()

    async def close(self) -> None:
        """Stop listening, close idle connections, and wait for the last responses to be sent."""
        while self._runners:
            await self._runners.pop().cleanup()


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


class Server(web.Server):
    """aiohttp's server, which reports the requests and the ends of its connections."""

    def __init__(self, handler: Handler, connections: Connections) -> None:
        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            try:
                return await handler(request)
            finally:
                connections.used(request.protocol)

        super().__init__(
            answer,
            access_log=None,
            # The edge rejects compressed bodies; to decompress them first would be the attack.
            auto_decompress=False,
            # A client that does not finish its headers is disconnected after the same time.
            keepalive_timeout=connections.limits.idle_seconds,
            # How long to read and discard the rest of a rejected body, so that its sender sees the
            # response.
            lingering_time=5.0,
        )
        self._ended = connections.closed

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        super().connection_lost(handler, exc)
        self._ended(handler)


class _Site(web.BaseSite):
    """Accepts connections, and passes them to the server of a runner."""

    def __init__(
        self,
        runner: web.BaseRunner,
        server: Server,
        connections: Connections,
        listening: socket.socket,
        ssl_context: SSLContext | None,
        rejected: Callable[[Rejection], None],
    ) -> None:
        super().__init__(runner, ssl_context=ssl_context)
        listening.setblocking(False)
        self._new_handler = server
        self._connections = connections
        self._listening = listening
        self._rejected = rejected
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        scheme = "https" if self._ssl_context else "http"
        host, port, *_ = self._listening.getsockname()
        return f"{scheme}://{host}:{port}"

    async def start(self) -> None:
        await super().start()
        self._start(self._accept())
        self._start(self._trim_memory())

    async def stop(self) -> None:
        """Stop accepting. The runner closes the open connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._listening.close()
        await super().stop()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._take(*await loop.sock_accept(self._listening))
                for _ in range(ACCEPTS_PER_TURN - 1):
                    self._take(*self._listening.accept())
            except BlockingIOError:
                # No other connection waits.
                continue
            except OSError as error:
                problem = os.strerror(error.errno or 0)
                event(_log, logging.WARNING, "cannot accept connections", problem=problem)
                await asyncio.sleep(_EXHAUSTED_SECONDS)

    def _take(self, connection: socket.socket, address: Any) -> None:
        host = str(address[0])
        if self._connections.make_room(host):
            handler: web.RequestHandler = self._new_handler()
            # It counts from now on, not from when its task runs.
            self._connections.opened(host, handler, self._start(self._connect(connection, handler)))
        else:
            connection.close()

    async def _connect(self, connection: socket.socket, handler: web.RequestHandler) -> None:
        """Complete the handshake, and pass the connection to its handler."""
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: handler,
                connection,
                ssl=self._ssl_context,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS if self._ssl_context else None,
            )
        except (OSError, SSLError):
            connection.close()
            self._connections.closed(handler)
            self._rejected("handshake")
        else:
            self._connections.established(handler)

    async def _trim_memory(self) -> None:
        """Return the memory of closed connections to the system."""
        trimmed = 0
        while True:
            await asyncio.sleep(_TRIM_SECONDS)
            gone = self._connections.accepted - len(self._connections)
            if gone != trimmed:
                trimmed = gone
                trim_memory()

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
