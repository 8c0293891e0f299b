"""Misbehaving clients: each kind uses its own source address and repeats."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from ssl import SSLContext

from soak.traffic import HOST

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_HEAD = b"POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
_GONE = (OSError, EOFError, TimeoutError)


class Abuse:
    """Runs every kind of misbehaving client against one port."""

    def __init__(self, port: int, context: SSLContext, idle: int) -> None:
        self._port, self._context, self._idle = port, context, idle
        self._chance = random.Random(4711)
        self.opened = 0

    async def run(self) -> None:
        """Run until the task is canceled."""
        behaviors = (
            self._repeat(self._slow_headers, 20),
            self._repeat(self._half_a_body, 20),
            self._repeat(self._no_tls, 5),
            self._repeat(self._abort_handshake, 5),
            self._repeat(self._leave_before_response, 5),
            self._hold_idle_connections(),
        )
        async with asyncio.TaskGroup() as group:
            for behavior in behaviors:
                group.create_task(behavior)

    async def _repeat(self, behave: Callable[[], Awaitable[None]], at_once: int) -> None:
        async def loop() -> None:
            while True:
                with contextlib.suppress(*_GONE):
                    await behave()
                await asyncio.sleep(self._chance.uniform(0.1, 1))

        await asyncio.gather(*(loop() for _ in range(at_once)))

    async def _slow_headers(self) -> None:
        _, writer = await self._connect("127.0.0.2")
        with contextlib.closing(writer):
            for byte in _HEAD:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.5)

    async def _half_a_body(self) -> None:
        reader, writer = await self._connect("127.0.0.3")
        with contextlib.closing(writer):
            writer.write(_HEAD + b"Content-Length: 5000\r\n\r\n{")
            async with asyncio.timeout(20):
                await reader.read()

    async def _no_tls(self) -> None:
        reader, writer = await self._connect("127.0.0.4", tls=False)
        with contextlib.closing(writer):
            writer.write(self._chance.randbytes(200))
            async with asyncio.timeout(20):
                await reader.read()

    async def _abort_handshake(self) -> None:
        _, writer = await self._connect("127.0.0.5", tls=False)
        # The beginning of a ClientHello.
        writer.write(b"\x16\x03\x01\x02\x00\x01")
        writer.transport.abort()

    async def _leave_before_response(self) -> None:
        _, writer = await self._connect("127.0.0.6")
        writer.write(_HEAD + b"Content-Length: 2\r\n\r\n{}")
        writer.transport.abort()

    async def _hold_idle_connections(self) -> None:
        """Keep connections open that send nothing; replace those that the server closes."""
        connections: list[Connection] = []
        while True:
            connections = [
                (reader, writer)
                for reader, writer in connections
                if not reader.at_eof() and not writer.is_closing()
            ]
            for _ in range(min(self._idle - len(connections), 200)):
                with contextlib.suppress(*_GONE):
                    connections.append(await self._connect("127.0.0.7", tls=False))
            await asyncio.sleep(1)

    async def _connect(self, source: str, *, tls: bool = True) -> Connection:
        self.opened += 1
        async with asyncio.timeout(20):
            return await asyncio.open_connection(
                HOST,
                self._port,
                local_addr=(source, 0),
                ssl=self._context if tls else None,
                server_hostname=HOST if tls else None,
            )
