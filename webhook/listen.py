"""Addresses and the applications that are served there."""

from __future__ import annotations

from ssl import SSLContext

from aiohttp import web

# Longer than an API server keeps an idle connection (Go's default transport: 90 s), so that it is
# the caller who closes it: a POST that meets a closing connection fails, and its admission with it.
# A client that has not finished its headers is given up after the same time.
_KEEPALIVE_SECONDS = 120.0

# How long the rest of a refused body is read and thrown away, so that its sender sees the answer.
_LINGERING_SECONDS = 5.0

# How long a handler that does not end is waited for; by then, nothing should be under way.
_SHUTDOWN_SECONDS = 1.0


class ListenError(Exception):
    """An address cannot be listened on: which one, why, and what to do."""


class Listeners:
    """Servers that were started, and are to be stopped in the opposite order."""

    def __init__(self) -> None:
        self._runners: list[web.AppRunner] = []

    async def listen(
        self,
        app: web.Application,
        host: str,
        port: int,
        option: str,
        ssl_context: SSLContext | None = None,
    ) -> int:
        """Serve ``app`` and return the port that was bound; 0 takes a free one.

        Raises:
            ListenError: the address is taken, or not this machine's; ``option`` is to be changed.
        """
        runner = web.AppRunner(
            app,
            access_log=None,
            # A compressed body is refused; inflating it first would be the bomb's work.
            auto_decompress=False,
            keepalive_timeout=_KEEPALIVE_SECONDS,
            lingering_time=_LINGERING_SECONDS,
            shutdown_timeout=_SHUTDOWN_SECONDS,
        )
        await runner.setup()
        self._runners.append(runner)
        try:
            await web.TCPSite(runner, host, port, ssl_context=ssl_context).start()
        except OSError as error:
            raise ListenError(
                f"{host}:{port}: cannot be listened on ({error.strerror or error}). "
                f"Choose another --{option}, or 0 for a free one."
            ) from error
        bound: int = runner.addresses[0][1]
        return bound

    async def close(self) -> None:
        """Stop listening, close idle connections, and wait for the last answers to be sent."""
        while self._runners:
            await self._runners.pop().cleanup()
