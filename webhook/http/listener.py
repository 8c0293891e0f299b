"""Addresses and the applications that are served there."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from ssl import SSLContext
from typing import Any

from aiohttp import web

from webhook.http.connections import BoundedSite, Refusal

_HTTP: dict[str, Any] = {
    "access_log": None,
    # A compressed body is refused; inflating it first would be the bomb's work.
    "auto_decompress": False,
    # Longer than an API server keeps an idle connection (Go's default transport: 90 s), so that it
    # is the caller who closes it: a POST that meets a closing connection fails, and its admission
    # with it. A client that has not finished its headers is given up after the same time.
    "keepalive_timeout": 120.0,
    # How long the rest of a refused body is read and thrown away, so that its sender sees the
    # answer.
    "lingering_time": 5.0,
}

# How long a handler that does not end is waited for; by then, nothing should be under way.
_SHUTDOWN_SECONDS = 1.0

# Connections that the kernel keeps while they wait to be accepted.
_BACKLOG = 256

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
"""Answers every request by itself, whatever its path."""


class ListenError(Exception):
    """An address cannot be listened on: which one, why, and what to do."""


class Listeners:
    """Servers that were started, and are to be stopped in the opposite order."""

    def __init__(self, refused: Callable[[Refusal], None], *, shared: bool = False) -> None:
        """``refused`` hears of every connection that was not taken, and why.

        ``shared`` says that other processes take connections from the same sockets.
        """
        self._runners: list[web.BaseRunner] = []
        self._refused = refused
        self._shared = shared

    async def serve(
        self,
        served: web.Application | Handler,
        listening: socket.socket,
        ssl_context: SSLContext | None = None,
    ) -> None:
        """Serve on a socket that listens (``listen``), and which is closed at the end."""
        runner: web.BaseRunner
        if isinstance(served, web.Application):
            runner = web.AppRunner(served, shutdown_timeout=_SHUTDOWN_SECONDS, **_HTTP)
        else:
            server = web.Server(served, **_HTTP)
            runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_SECONDS)
        await runner.setup()
        self._runners.append(runner)
        site = BoundedSite(runner, listening, ssl_context, self._refused, shared=self._shared)
        await site.start()

    async def close(self) -> None:
        """Stop listening, close idle connections, and wait for the last answers to be sent."""
        while self._runners:
            await self._runners.pop().cleanup()


def listen(host: str, port: int, option: str) -> socket.socket:
    """Return a socket that listens there; port 0 takes a free one (``port_of``).

    Raises:
        ListenError: the address is taken, or not this machine's; ``option`` is to be changed.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        # create_server adds the address to the text; a name that cannot be resolved has no
        # number of the operating system's.
        number = error.errno or 0
        problem = os.strerror(number) if number > 0 else error.strerror or str(error)
        raise ListenError(
            f"{host}:{port}: cannot be listened on ({problem}). "
            f"Choose another --{option}, or 0 for a free one."
        ) from error


def port_of(listening: socket.socket) -> int:
    """Return the port that was bound."""
    port: int = listening.getsockname()[1]
    return port
