"""Connections, a bounded number of them and of each address."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path

import pytest
import uvloop
from aiohttp import web

from bench.contestants import resident_mebibytes
from reviewing import encode, plain_pod, review
from served_process import Server, read_response, ready_server, request
from webhook.http import connections as accept
from webhook.http.listener import Listeners, listen, port_of

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[str], Awaitable[Connection]]

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture
def refused() -> Counter[str]:
    return Counter()


@pytest.fixture
async def connect(refused: Counter[str], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Connect]:
    """Serve at most four connections, two of one address; return what connects from an address."""
    monkeypatch.setattr(accept, "MOST", 4)
    monkeypatch.setattr(accept, "MOST_OF_ONE", 2)

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="here")

    app = web.Application()
    app.router.add_get("/", answer)
    listeners = Listeners(lambda reason: refused.update([reason]))
    listening = listen("127.0.0.1", 0, "port")
    port = port_of(listening)
    await listeners.serve(app, listening)
    writers: list[asyncio.StreamWriter] = []

    async def connected(source: str) -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
        writers.append(writer)
        return reader, writer

    yield connected
    for writer in writers:
        writer.close()
    await listeners.close()


async def is_served(connection: Connection) -> bool:
    """Tell whether a request on the connection is answered, rather than hung up on."""
    reader, writer = connection
    try:
        writer.write(REQUEST)
        return (await reader.readline()).startswith(b"HTTP/1.1 200")
    except ConnectionError:
        return False


async def test_one_address_gets_no_more_than_its_share(
    connect: Connect, refused: Counter[str]
) -> None:
    held = [await connect("127.0.0.2") for _ in range(2)]
    assert [await is_served(each) for each in held] == [True, True]
    assert not await is_served(await connect("127.0.0.2"))
    assert await is_served(await connect("127.0.0.3"))
    assert refused == {"too_many": 1}


async def test_all_together_get_no_more_than_there_is_room_for(
    connect: Connect, refused: Counter[str]
) -> None:
    held = [await connect(f"127.0.0.{host}") for host in (2, 2, 3, 3)]
    assert [await is_served(each) for each in held] == [True] * 4
    assert not await is_served(await connect("127.0.0.4"))
    assert refused == {"too_many": 1}


async def test_who_hangs_up_makes_room(connect: Connect) -> None:
    first, second = [await connect("127.0.0.2") for _ in range(2)]
    assert await is_served(first)
    assert await is_served(second)
    first[1].close()
    await first[1].wait_closed()
    async with asyncio.timeout(10):
        while not await is_served(await connect("127.0.0.2")):
            pass


def test_newcomers_are_taken_together_however_busy_those_are_who_are_connected() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(turns_to_take(30)) < 10


async def turns_to_take(number: int) -> int:
    """Return the turns of the loop in which so many connections are taken that wait together."""
    listening = listen("127.0.0.1", 0, "port")
    server = web.Server(lambda _request: asyncio.sleep(0, web.Response()))
    runner = web.ServerRunner(server)
    await runner.setup()
    # The kernel takes them, and they wait for the server.
    waiting = [socket.create_connection(listening.getsockname()) for _ in range(number)]
    await accept.BoundedSite(runner, listening, None, lambda _why: None).start()
    turns = 0
    while len(server.connections) < number:
        turns += 1
        assert turns < 1000, "they are not taken"
        await asyncio.sleep(0)
    for each in waiting:
        each.close()
    await runner.cleanup()
    return turns


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc gives memory back when it is asked")
async def test_connections_that_have_gone_leave_no_memory_behind(pair: Path) -> None:
    async with ready_server(pair) as running:
        before = resident_mebibytes(running.process.pid)
        for _ in range(5):
            begin_and_leave(running, 700)
        # In vain, the last would have left three times as much.
        async with asyncio.timeout(30):
            while resident_mebibytes(running.process.pid) > before + 30:  # noqa: ASYNC110 - it is another process
                await asyncio.sleep(0.1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such addresses and /proc")
async def test_a_hundred_bodies_that_do_not_end_leave_room_to_work(pair: Path) -> None:
    good = encode(review(plain_pod()))
    async with ready_server(pair) as running, AsyncExitStack() as held:
        before = resident_mebibytes(running.process.pid)
        for _ in range(100):
            _, writer = await running.connect()
            held.callback(writer.close)
            writer.write(b"POST /validate?timeout=30s HTTP/1.1\r\nHost: x\r\n")
            writer.write(b"Content-Type: application/json\r\nContent-Length: 8000000\r\n\r\n")
            # All would be 400 MiB, beside connections and what is parsed.
            with suppress(ConnectionError):
                for _ in range(40):
                    writer.write(b" " * 100_000)
                    await writer.drain()
        reader, writer = await running.connect()
        held.callback(writer.close)
        for _ in range(20):
            writer.write(request(good))
            _, answer = await read_response(reader)
            assert answer["response"]["allowed"] is True
            assert resident_mebibytes(running.process.pid) < before + 120


def begin_and_leave(running: Server, number: int) -> None:
    """Begin so many handshakes, all open at a time, and hang up when all have been answered."""
    with ExitStack() as held:
        begun = []
        for place in range(number):
            address = ("127.0.0.1", running.ready["port"])
            each = socket.create_connection(address, 30, (f"127.0.0.{2 + place % 9}", 0))
            begun.append(held.enter_context(each))
            # At once: the server hangs up on who is silent for ten seconds, and as many as these
            # can be kept waiting for some by the kernel.
            each.sendall(hello(running.tls))
        for each in begun:
            assert each.recv(1)


def hello(client: ssl.SSLContext) -> bytes:
    """Return what a client's handshake begins with."""
    sent = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        client.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="127.0.0.1").do_handshake()
    return sent.read()
