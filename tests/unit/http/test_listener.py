"""Connections, a bounded number of them and of each address."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import ssl
import struct
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
import uvloop
from aiohttp import web

from controlplane.gpufence import HOST
from served_process import Served
from webhook.serve.http.listener import (
    OPERATIONS,
    REVIEWS,
    Handler,
    Limits,
    Listener,
    listen,
    port_of,
)

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[str], Awaitable[Connection]]

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
UNFINISHED = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{"


@pytest.fixture
def rejected() -> Counter[str]:
    return Counter()


@pytest.fixture
def busy() -> dict[str, int]:
    """The addresses whose requests get no answer for now, and how many of these wait."""
    return {}


@pytest.fixture
async def connect(rejected: Counter[str], busy: dict[str, int]) -> AsyncIterator[Connect]:
    """Serve at most four connections; return what connects from an address."""

    async def answer(request: web.BaseRequest) -> web.Response:
        address = str(request.remote)
        if address in busy:
            busy[address] += 1
        while address in busy:  # noqa: ASYNC110 - the test changes it
            await asyncio.sleep(0)
        return await greet(request)

    async with serving(answer, rejected) as connected:
        yield connected


async def greet(_request: web.BaseRequest) -> web.Response:
    return web.Response(text="here")


@asynccontextmanager
async def serving(
    answer: Handler,
    rejected: Counter[str],
    tls: ssl.SSLContext | None = None,
    idle_seconds: float = 60,
) -> AsyncIterator[Connect]:
    listening = listen("127.0.0.1", 0, "port")
    port = port_of(listening)
    listener = Listener(answer, Limits(4, idle_seconds), lambda why: rejected.update([why]))
    listener.start(listening, (lambda: tls) if tls else None)
    writers: list[asyncio.StreamWriter] = []

    async def connected(source: str) -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
        writers.append(writer)
        return reader, writer

    yield connected
    for writer in writers:
        writer.close()
    await listener.close()


async def occupy(
    connections: list[Connection],
    busy: dict[str, int],
    *addresses: str,
    request: bytes = REQUEST,
) -> None:
    """Send a request on each connection; those of these addresses get no answer for now."""
    busy |= dict.fromkeys(addresses, 0)
    for _, writer in connections:
        writer.write(request)
    while sum(busy.values()) < len(connections):  # noqa: ASYNC110 - counted by the server
        await asyncio.sleep(0)


async def is_served(connection: Connection) -> bool:
    """Return whether the server answers a request on the connection, rather than closing it."""
    connection[1].write(REQUEST)
    return await is_answered(connection)


async def is_answered(connection: Connection) -> bool:
    """Return whether the server answers a request that was sent."""
    reader, _ = connection
    try:
        async with asyncio.timeout(10):
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(4)
    except (ConnectionError, asyncio.IncompleteReadError):
        return False
    return head.startswith(b"HTTP/1.1 200")


async def is_closed(connection: Connection) -> bool:
    """Return whether the server closes the connection, on which nothing was sent."""
    with suppress(ConnectionError):
        async with asyncio.timeout(10):
            return not await connection[0].read(1)
    return True


async def test_an_address_with_all_connections_loses_its_longest_idle_one(
    connect: Connect, rejected: Counter[str]
) -> None:
    reader, writer = await connect("127.0.0.2")
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    await reader.read()
    # That connection has ended, and no longer counts.
    held = [await connect("127.0.0.2") for _ in range(4)]
    assert [await is_served(connection) for connection in [*held, held[0]]] == [True] * 5
    for longest_idle in held[1:3]:
        assert await is_served(await connect("127.0.0.2"))
        assert await is_closed(longest_idle)
    assert [await is_served(held[place]) for place in (0, 3)] == [True] * 2
    assert rejected == {"evicted": 2}


async def test_an_unused_connection_is_evicted_before_an_idle_connection(connect: Connect) -> None:
    used = [await connect("127.0.0.2") for _ in range(3)]
    assert [await is_served(connection) for connection in used] == [True] * 3
    unused = await connect("127.0.0.2")
    assert await is_served(await connect("127.0.0.2"))
    assert await is_closed(unused)
    assert [await is_served(connection) for connection in used] == [True] * 3


async def test_a_full_server_evicts_from_the_address_with_most_connections(
    connect: Connect, rejected: Counter[str]
) -> None:
    idle = [await connect(f"127.0.0.{host}") for host in (2, 3, 4, 3)]
    newcomer = await connect("127.0.0.5")
    assert await is_served(newcomer)
    assert await is_closed(idle[1])
    assert [await is_served(idle[place]) for place in (0, 2, 3)] == [True] * 3
    # Now each has one, and the newcomer has to give up its own.
    assert await is_served(await connect("127.0.0.5"))
    assert await is_closed(newcomer)
    assert [await is_served(idle[place]) for place in (0, 2, 3)] == [True] * 3
    assert rejected == {"evicted": 2}


async def test_a_connection_with_a_request_in_flight_is_never_evicted(
    connect: Connect, busy: dict[str, int], rejected: Counter[str]
) -> None:
    held = [await connect(f"127.0.0.{host}") for host in (2, 2, 3, 3)]
    assert [await is_served(connection) for connection in held] == [True] * 4
    await occupy(held, busy, "127.0.0.2", "127.0.0.3")
    assert not await is_served(await connect("127.0.0.2"))
    assert not await is_served(await connect("127.0.0.4"))
    assert rejected == {"too_many": 2}
    del busy["127.0.0.3"]
    assert [await is_answered(connection) for connection in held[2:]] == [True, True]
    assert await is_served(await connect("127.0.0.4"))
    busy.clear()
    assert [await is_answered(connection) for connection in held[:2]] == [True, True]


async def test_a_connection_whose_body_never_ends_is_evicted(
    connect: Connect, busy: dict[str, int]
) -> None:
    held = [await connect("127.0.0.2") for _ in range(4)]
    await occupy(held, busy, "127.0.0.2", request=UNFINISHED)
    assert await is_served(await connect("127.0.0.3"))
    busy.clear()


def test_failed_and_unfinished_handshakes_are_closed_and_leave_room() -> None:
    for loop in (uvloop.new_event_loop, asyncio.new_event_loop):
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(handshakes())


async def handshakes() -> None:
    """Check a listener on which no handshake succeeds, because it has no certificate."""
    rejected: Counter[str] = Counter()
    without = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    async with serving(greet, rejected, tls=without) as connect:
        for _ in range(5):
            failed = await connect("127.0.0.2")
            failed[1].write(REQUEST)
            assert await is_closed(failed)
        assert rejected == {"handshake": 5}
        unfinished = [await connect("127.0.0.2") for _ in range(6)]
        assert [await is_closed(connection) for connection in unfinished[:2]] == [True] * 2
        assert rejected == {"handshake": 5, "evicted": 2}


async def test_an_idle_connection_is_closed_and_its_memory_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    returned = asyncio.Event()
    monkeypatch.setattr(f"{Listener.__module__}._TRIM_SECONDS", 0)
    monkeypatch.setattr(f"{Listener.__module__}._malloc_trim", lambda _pad: returned.set())
    async with serving(greet, Counter(), idle_seconds=0.01) as connect, asyncio.timeout(10):
        used = await connect("127.0.0.2")
        used[1].write(REQUEST)
        with suppress(ConnectionError):
            await used[0].read()
        assert await is_closed(await connect("127.0.0.2"))
        await returned.wait()


async def test_connections_are_accepted_again_after_an_error(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, errors = socket.socket.accept, iter([OSError(errno.EMFILE, "")])

    def accept_later(listening: socket.socket) -> tuple[socket.socket, object]:
        for error in errors:
            raise error
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", accept_later)
    assert await is_served(await connect("127.0.0.2"))


def test_probes_are_answered_despite_idle_connections(pair: Path) -> None:
    """Of the metrics port, which kubelets probe."""
    with Served(pair) as running, ExitStack() as held:
        idle = []
        for place in range(3 * OPERATIONS.connections):
            source = (f"127.0.0.{2 + place % 3}", 0)
            connection = socket.create_connection((HOST, running.metrics_port), 10, source)
            idle.append(held.enter_context(connection))
        for _ in range(5):
            assert running.get("/healthz") == (200, "ok\n")
        # The port has a bound of its own, lower than that for reviews.
        with suppress(ConnectionError):
            assert not idle[0].recv(1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts them for a socket so")
def test_the_backlog_accepts_600_connections_without_retransmission(pair: Path) -> None:
    """The client's kernel sends a SYN that was dropped again after a second."""
    with Served(pair) as running, ExitStack() as held:
        # The server does not accept: the kernel alone completes the connections.
        assert running.process.pid is not None
        os.kill(running.process.pid, signal.SIGSTOP)
        repeated = 0
        try:
            for place in range(600):
                source = (f"127.0.0.{2 + place % 4}", 0)
                connection = socket.create_connection((HOST, running.port), 10, source)
                repeated += retransmissions(held.enter_context(connection))
        finally:
            os.kill(running.process.pid, signal.SIGCONT)
    assert repeated == 0


def test_pending_connections_are_accepted_in_batches() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(turns_to_accept(30)) < 10


async def turns_to_accept(number: int) -> int:
    """Return the turns of the loop in which so many connections are taken that wait together."""
    listening = listen("127.0.0.1", 0, "port")
    # The kernel completes the connections, and they wait for the server.
    waiting = [socket.create_connection(listening.getsockname()) for _ in range(number)]
    for connection in waiting:
        connection.sendall(REQUEST)
    served = 0

    async def answer(_request: web.BaseRequest) -> web.Response:
        nonlocal served
        served += 1
        return web.Response()

    listener = Listener(answer, REVIEWS)
    listener.start(listening)
    turns = 0
    while served < number:
        turns += 1
        assert turns < 1000, "they are not taken"
        await asyncio.sleep(0)
    for connection in waiting:
        connection.close()
    await listener.close()
    return turns


def retransmissions(connection: socket.socket) -> int:
    """Return how many segments the kernel has sent again (tcpi_total_retrans of tcp(7))."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    count: int = struct.unpack_from("I", info, 100)[0]
    return count
