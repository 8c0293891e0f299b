"""The time of an API server, and what a hostile or broken one can do to its client."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from webhook.kube.client import MOST_BYTES, ServerClock
from webhook.kube.credentials import Access
from webhook.kube.errors import ClusterError
from webhook.kube.listing import list_all
from webhook.kube.writer import KubeWriter

Call = Callable[[KubeWriter], Awaitable[object]]


def test_the_time_is_that_of_the_last_valid_date_header(subtests: pytest.Subtests) -> None:
    noon = "Sun, 01 Mar 2026 12:00:00"
    for header, time in (
        (f"{noon} GMT", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("noon", datetime.now(UTC)),
        (f"{noon} -0000", datetime.now(UTC)),
        (f"{noon} +{'9' * 20}", datetime.now(UTC)),
    ):
        with subtests.test(header=header):
            clock = ServerClock()
            clock.observe(header)
            assert abs(clock.now() - time) < timedelta(minutes=5)


def client_of(host: str) -> KubeWriter:
    async def authorization() -> str:
        return "Bearer secret"

    async def load() -> Access:
        return Access(host, ssl.create_default_context(), authorization)

    return KubeWriter(load)


@asynccontextmanager
async def api_server(responses: Sequence[bytes]) -> AsyncIterator[tuple[KubeWriter, list[bytes]]]:
    """A client of a server that answers each request with the responses, and what it received.

    The last response is repeated for as long as the client reads.
    """
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                received.append(head)
                writer.write(responses[0])
                for part in itertools.repeat(responses[-1]) if len(responses) > 1 else ():
                    writer.write(part)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = client_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with server:
        yield client, received
        await client.close()


def response(body: bytes, status: int = 200, **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {text}\r\n" for name, text in headers.items())
    return f"HTTP/1.1 {status} -\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def read(client: KubeWriter) -> object:
    return await client.read("/a")


async def write(client: KubeWriter) -> object:
    return await client.replace("/a", {"data": {"ca.key": "secret"}})


async def listed(client: KubeWriter) -> object:
    return await list_all(client, "/a", msgspec.Raw, bytes)


async def watched(client: KubeWriter, seconds: float = 25) -> object:
    async with client.lines("/a", {}, seconds=seconds, quiet_seconds=60) as lines:
        return [line async for line in lines]


async def watched_briefly(client: KubeWriter) -> object:
    return await watched(client, 0.5)


CHUNKED = b"HTTP/1.1 200 -\r\nTransfer-Encoding: chunked\r\n\r\n"
DEEP = b'{"metadata": {}, "items": [' + b'{"a":' * 5000
PAGE = b'{"metadata": {"continue": "x"}, "items": []}'
HOSTILE: dict[str, tuple[Sequence[bytes], Sequence[Call], str]] = {
    "an endless body": (
        [CHUNKED, b"10000\r\n" + b"[" * 0x10000 + b"\r\n"],
        (read, write),
        "32,768",
    ),
    "an endless line": ([CHUNKED, b"10000\r\n" + b"[" * 0x10000 + b"\r\n"], (watched,), "32,768"),
    "a line that never ends": ([CHUNKED, b"1\r\n[\r\n"], (watched_briefly,), "no response in time"),
    "a compressed body": (
        [response(gzip.compress(b"[" * MOST_BYTES), Content_Encoding="gzip")],
        (read, write),
        "malformed",
    ),
    "deep nesting": ([response(DEEP)], (read, write, listed), "recursion"),
    "another type": ([response(b"[]")], (read, write, listed), "Expected `object`"),
    "the same page again": ([response(PAGE)], (listed,), "the list has no end"),
}
"""What a server sends, to which calls, and what their error says."""


@pytest.mark.parametrize("case", HOSTILE)
async def test_a_hostile_response_is_an_error_within_limits(case: str) -> None:
    responses, calls, message = HOSTILE[case]
    for call in calls:
        async with asyncio.timeout(30), api_server(responses) as (client, _):
            with pytest.raises(ClusterError, match=message):
                await call(client)


async def test_the_same_failure_has_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The URL of a watch has a random timeout, and a failure that repeats is logged once."""
    monkeypatch.setattr("webhook.kube.client._CONNECT_SECONDS", 0.05)

    async def problem(client: KubeWriter, seconds: str) -> str:
        query = {"timeoutSeconds": seconds}
        with pytest.raises(ClusterError) as caught:
            async with client.lines("/a", query, seconds=60, quiet_seconds=60):
                pass
        return str(caught.value)

    async with api_server([b"no HTTP\r\n\r\n"]) as (client, _):
        texts = [await problem(client, "301"), await problem(client, "302")]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # It takes connections, and answers no handshake.
        host = f"https://127.0.0.1:{silent.getsockname()[1]}"
        client = client_of(host)
        texts += [await problem(client, "301"), await problem(client, "302")]
        await client.close()
    assert texts[0] == texts[1]
    assert texts[2] == texts[3]
    assert "timeoutSeconds" not in "".join(texts)


async def test_a_redirect_is_not_followed_and_its_cookies_are_not_kept(
    subtests: pytest.Subtests,
) -> None:
    """It would take the body of a write, such as the key of the CA, to another server."""
    async with api_server([response(b"{}")]) as (target, stolen):
        other = await target.host()
        for status, call in itertools.product((301, 302, 303, 307, 308), (read, write, listed)):
            answer = response(b"", status, Location=f"{other}/b", Set_Cookie="a=b")
            refused = pytest.raises(ClusterError, match=f"redirects to {other}/b")
            async with api_server([answer]) as (client, received):
                for _ in range(2):
                    with subtests.test(status=status, call=call), refused:
                        await call(client)
                assert b"cookie" not in b"".join(received).lower()
        assert stolen == []
