"""Reviews at a steady rate, each answer compared with what the engine says.

An open loop: a request is due when it is due, however slow the last one was, and its latency counts
from there.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from ssl import SSLContext

HOST = "127.0.0.1"
_ANSWER_SECONDS = 10.0
_PAUSE_SECONDS = 1.0
"""How long a client waits before it retries, as API servers do."""


@dataclass(frozen=True)
class Question:
    """A review, where it is sent, and every answer that is right (one for each policy)."""

    path: str
    body: bytes
    answers: frozenset[bytes]

    @property
    def request(self) -> bytes:
        head = (
            f"POST {self.path}?timeout=3s HTTP/1.1\r\nHost: {HOST}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(self.body)}\r\n\r\n"
        )
        return head.encode() + self.body


@dataclass
class Outcomes:
    """What became of the requests.

    `latencies` in seconds are of those that were answered rightly, `refusals` of the others.
    """

    counts: Counter[str] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    refusals: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def taken(self) -> tuple[Counter[str], list[float]]:
        """Return counts and latencies since the last call, and reset them."""
        found = self.counts, sorted(self.latencies)
        self.counts, self.latencies, self.refusals = Counter(), [], []
        return found


class Caller:
    """A connection that is kept alive, and opened again where the server closes it."""

    def __init__(
        self, port: int, context: SSLContext, outcomes: Outcomes, source: str = HOST
    ) -> None:
        self._port, self._context, self._outcomes, self._source = port, context, outcomes, source
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, question: Question, due: float) -> None:
        """Send a review and note what comes back; one more try where the connection was stale."""
        for fresh in (self._streams is None, True):
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    status, body = await self._exchange(question.request)
            except (OSError, EOFError, TimeoutError) as error:
                await self.close()
                if fresh:
                    self._outcomes.counts[f"failed: {type(error).__name__}"] += 1
                    self._outcomes.refusals.append(time.perf_counter() - due)
                    await asyncio.sleep(_PAUSE_SECONDS)
                    return
                continue
            self._note(question, status, body, time.perf_counter() - due)
            return

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the connection that is open, or a new one."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(
                HOST,
                self._port,
                local_addr=(self._source, 0),
                ssl=self._context,
                server_hostname=HOST,
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

    def _note(self, question: Question, status: int, body: bytes, seconds: float) -> None:
        if status == 200 and body in question.answers:
            self._outcomes.counts["right"] += 1
            self._outcomes.latencies.append(seconds)
        elif status == 429:
            self._outcomes.counts["turned away"] += 1
            self._outcomes.refusals.append(seconds)
        else:
            self._outcomes.counts["wrong"] += 1
            self._outcomes.wrong.append(f"{status} {body[:300]!r}")


async def send(
    callers: Sequence[Caller], questions: Sequence[Question], rate: float, seconds: float
) -> None:
    """Send `rate` requests a second over all connections together, the questions in turn."""
    began = time.perf_counter()

    async def work(number: int, caller: Caller) -> None:
        turn = number
        while (due := began + turn / rate) < began + seconds:
            await asyncio.sleep(due - time.perf_counter())
            await caller.ask(questions[turn % len(questions)], due)
            turn += len(callers)

    await asyncio.gather(*(work(*each) for each in enumerate(callers)))


async def press(callers: Sequence[Caller], questions: Sequence[Question], seconds: float) -> float:
    """Let each client send as fast as it can; return the requests a second."""
    ends = time.perf_counter() + seconds
    done = 0

    async def work(number: int, caller: Caller) -> None:
        nonlocal done
        turn = number
        while (now := time.perf_counter()) < ends:
            await caller.ask(questions[turn % len(questions)], now)
            turn += 1
            done += 1

    await asyncio.gather(*(work(*each) for each in enumerate(callers)))
    return done / seconds
