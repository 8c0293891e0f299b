"""Sends reviews at a steady rate, and compares each response with the engine's.

An open loop: the schedule does not depend on responses, and latency counts from the due time.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from ssl import SSLContext

HOST = "127.0.0.1"
_RESPONSE_SECONDS = 10.0
_PAUSE_SECONDS = 1.0
"""Pause before a retry, as API servers do."""


@dataclass(frozen=True)
class ExpectedReview:
    """A review, its endpoint, and the correct responses (one for each policy)."""

    path: str
    body: bytes
    responses: frozenset[bytes]

    @property
    def request(self) -> bytes:
        head = (
            f"POST {self.path}?timeout=3s HTTP/1.1\r\nHost: {HOST}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(self.body)}\r\n\r\n"
        )
        return head.encode() + self.body


@dataclass
class Outcomes:
    """The outcomes of requests; `latencies` are the seconds of correct responses."""

    counts: Counter[str] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def take(self) -> tuple[Counter[str], list[float]]:
        """Return counts and latencies since the last call, and reset them."""
        outcomes = self.counts, sorted(self.latencies)
        self.counts, self.latencies = Counter(), []
        return outcomes


class Client:
    """A keep-alive connection, reopened when the server closes it."""

    def __init__(self, port: int, context: SSLContext, outcomes: Outcomes) -> None:
        self._port, self._context, self._outcomes = port, context, outcomes
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, review: ExpectedReview, due: float) -> None:
        """Send a review and record the outcome; retry once on a stale connection."""
        for fresh in (self._streams is None, True):
            try:
                async with asyncio.timeout(_RESPONSE_SECONDS):
                    status, body = await self._exchange(review.request)
            except (OSError, EOFError, TimeoutError) as error:
                await self.close()
                if fresh:
                    self._outcomes.counts[f"failed: {type(error).__name__}"] += 1
                    await asyncio.sleep(_PAUSE_SECONDS)
                    return
                continue
            self._note(review, status, body, time.perf_counter() - due)
            return

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the connection that is open, or a new one."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(
                HOST, self._port, ssl=self._context, server_hostname=HOST
            )
        return self._streams

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _exchange(self, request: bytes) -> tuple[int, bytes]:
        reader, writer = await self.connect()
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int(fields["content-length"]))
        if fields.get("connection") == "close":
            await self.close()
        return int(head[0].split()[1]), body

    def _note(self, review: ExpectedReview, status: int, body: bytes, seconds: float) -> None:
        if status == 200 and body in review.responses:
            self._outcomes.counts["correct"] += 1
            self._outcomes.latencies.append(seconds)
        elif status == 429:
            self._outcomes.counts["rejected"] += 1
        else:
            self._outcomes.counts["wrong"] += 1
            self._outcomes.wrong.append(f"{status} {body[:300]!r}")


async def send(
    clients: Sequence[Client], reviews: Sequence[ExpectedReview], rate: float, seconds: float
) -> None:
    """Send `rate` requests a second over all connections together, the reviews in turn."""
    start = time.perf_counter()

    async def work(number: int, client: Client) -> None:
        turn = number
        while (due := start + turn / rate) < start + seconds:
            await asyncio.sleep(due - time.perf_counter())
            await client.send(reviews[turn % len(reviews)], due)
            turn += len(clients)

    await asyncio.gather(*(work(number, client) for number, client in enumerate(clients)))


async def saturate(
    clients: Sequence[Client], reviews: Sequence[ExpectedReview], seconds: float
) -> float:
    """Let each client send as fast as it can; return the requests a second."""
    ends = time.perf_counter() + seconds
    sent = 0

    async def work(number: int, client: Client) -> None:
        nonlocal sent
        turn = number
        while (now := time.perf_counter()) < ends:
            await client.send(reviews[turn % len(reviews)], now)
            turn += 1
            sent += 1

    await asyncio.gather(*(work(number, client) for number, client in enumerate(clients)))
    return sent / seconds
