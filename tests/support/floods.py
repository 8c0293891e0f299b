"""Clients that try to exhaust a server: many useless connections from few addresses."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_PAUSE_SECONDS = 0.2
"""Pause before a closed connection is opened again."""

ONE_BYTE = (
    b"POST /mutate?timeout=30s HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
)
IDLE = b""
CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01"
"""The beginning of one, without TLS."""


class Flood:
    """`count` connections from each address; each sends `sent` and waits."""

    def __init__(
        self,
        port: int,
        sources: Sequence[str],
        count: int,
        sent: bytes,
        context: ssl.SSLContext | None,
    ) -> None:
        self.opened = 0
        self._port, self._sources, self._count = port, sources, count
        self._sent, self._context = sent, context

    async def run(self) -> None:
        """Run until the task is canceled."""
        async with asyncio.TaskGroup() as group:
            for source in self._sources:
                for _ in range(self._count):
                    group.create_task(self._hold(source))

    async def _hold(self, source: str) -> None:
        while True:
            with contextlib.suppress(OSError, EOFError, TimeoutError):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1",
                    self._port,
                    local_addr=(source, 0),
                    ssl=self._context,
                    server_hostname="localhost" if self._context else None,
                )
                self.opened += 1
                try:
                    writer.write(self._sent)
                    await reader.read()
                finally:
                    writer.transport.abort()
            await asyncio.sleep(_PAUSE_SECONDS)


@contextmanager
def flooding(*floods: Flood) -> Iterator[None]:
    """Run floods in a thread during the block."""
    loop = asyncio.new_event_loop()

    async def run() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*(flood.run() for flood in floods))
        # The next turns of the loop close the sockets.
        await asyncio.sleep(_PAUSE_SECONDS)

    task = loop.create_task(run())
    thread = threading.Thread(target=lambda: loop.run_until_complete(task))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()
