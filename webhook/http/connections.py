"""Accepting connections: a bounded number of them, and of each address.

A TLS connection costs some 50 KiB before it has asked anything (most of it OpenSSL's), so that
whoever can reach the port could otherwise use up a replica's memory by doing nothing at all. An API
server holds as many connections as it has admissions under way.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Coroutine
from ssl import SSLContext, SSLError
from typing import Any, Literal, cast

from aiohttp import web

from webhook.http.memory import give_back
from webhook.logs import event

MOST = 800
"""Connections in all: 40 MiB, beside which a replica's memory limit leaves it enough to work."""

MOST_OF_ONE = 400
"""Connections of one address. Behind a proxy (konnectivity) all API servers have the same one, with
up to 200 admissions under way in each (``--max-mutating-requests-inflight``)."""

AT_ONCE = 64
"""Connections that are taken in one turn of the event loop, where nobody shares the socket. A turn
answers everybody who has asked, and lasts long where they are hundreds: one connection a turn would
have newcomers wait for seconds. More would have those who are connected wait for their handshakes.
"""

_HANDSHAKE_SECONDS = 10.0

# How long to wait where there are no descriptors left: until some connection has gone.
_EXHAUSTED_SECONDS = 0.1

# How often what connections have left is given back, if any have gone. For each, uvloop reserves
# 256 KiB, among which OpenSSL's small pieces then come to lie: 700 handshakes that were given up,
# 25 times over, left 167 MiB, and it went on. Like this, 14.
_GIVE_BACK_SECONDS = 1.0

Refusal = Literal["too_many", "handshake"]

_log = logging.getLogger("gpufence")


class BoundedSite(web.BaseSite):
    """Serves what a runner runs on a listening socket.

    ``refused`` hears of every connection that was not taken, and why. Where the socket is
    ``shared``, no process takes a second connection in one turn: that one is for another, who may
    be idle.
    """

    def __init__(
        self,
        runner: web.BaseRunner,
        listening: socket.socket,
        ssl_context: SSLContext | None,
        refused: Callable[[Refusal], None],
        *,
        shared: bool = False,
    ) -> None:
        super().__init__(runner, ssl_context=ssl_context)
        self._http = cast("web.Server", runner.server)
        listening.setblocking(False)
        self._listening = listening
        self._refused = refused
        self._at_once = 1 if shared else AT_ONCE
        self._connecting: Counter[str] = Counter()
        self._taken = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        scheme = "https" if self._ssl_context else "http"
        host, port, *_ = self._listening.getsockname()
        return f"{scheme}://{host}:{port}"

    async def start(self) -> None:
        await super().start()
        self._start(self._accept())
        self._start(self._give_back())

    async def stop(self) -> None:
        """Accept no more. Connections that are open are the runner's to close."""
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
                for _ in range(self._at_once - 1):
                    self._take(*self._listening.accept())
            except BlockingIOError:
                # Nobody else waits.
                continue
            except OSError as error:
                event(_log, logging.WARNING, "not accepting", problem=os.strerror(error.errno or 0))
                await asyncio.sleep(_EXHAUSTED_SECONDS)

    def _take(self, connection: socket.socket, address: Any) -> None:
        host = str(address[0])
        if self._has_room(host):
            # Counted from now on, and not only when its task runs.
            self._connecting[host] += 1
            self._taken += 1
            self._start(self._connect(connection, host))
        else:
            connection.close()
            self._refused("too_many")

    async def _connect(self, connection: socket.socket, host: str) -> None:
        """Hand the connection to the runner, by way of its handshake."""
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._http,
                connection,
                ssl=self._ssl_context,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS if self._ssl_context else None,
            )
        except (OSError, SSLError):
            connection.close()
            self._refused("handshake")
        finally:
            self._connecting[host] -= 1
            if not self._connecting[host]:
                del self._connecting[host]

    async def _give_back(self) -> None:
        """Give back the memory of connections that have gone."""
        known = 0
        while True:
            await asyncio.sleep(_GIVE_BACK_SECONDS)
            gone = self._taken - len(self._http.connections) - self._connecting.total()
            if gone != known:
                known = gone
                give_back()

    def _has_room(self, host: str) -> bool:
        held = self._http.connections
        shaking = self._connecting.total()
        if len(held) + shaking < MOST_OF_ONE:
            return True
        of_one = self._connecting[host] + sum(_peer(handler) == host for handler in held)
        return len(held) + shaking < MOST and of_one < MOST_OF_ONE

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _peer(handler: web.RequestHandler) -> str:
    peer = handler.transport and handler.transport.get_extra_info("peername")
    return str(peer[0]) if peer else ""
