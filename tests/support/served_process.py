"""A replica in a process of its own, on loopback, over TLS, and requests to it byte by byte."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import pytest

from controlplane.errors import ControlPlaneError
from controlplane.gpufence import HOST, Replica
from controlplane.poll import until
from policies.shipped import DEFAULT


class Served(Replica):
    """A replica with the key pair in a directory, its log so far, and connections to it."""

    def __init__(self, pair: Path, *flags: str) -> None:
        files = (f"--tls-cert={pair / 'tls.crt'}", f"--tls-key={pair / 'tls.key'}")
        super().__init__(pair, [*files, f"--policy={DEFAULT}", "--drain-seconds=0", *flags])
        self.tls = ssl.create_default_context(cafile=pair / "ca.crt")

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(HOST, self.port, ssl=self.tls)

    def logged(self, event: str) -> dict[str, Any]:
        """Wait for an event, and return the last line about it."""
        return until(lambda: self.events(event), f"the event {event!r}", every=0.02)[-1]

    def readiness(self) -> tuple[int, str]:
        """Return status and first line of /readyz; problems of a ready replica follow it."""
        status, text = self.get("/readyz")
        return status, text.partition("\n")[0]

    def check_end(self, within: float = 30) -> None:
        """Wait until it ends, and fail if its exit status is not 0."""
        with pytest.raises(ControlPlaneError, match="ended with exit code 0"):
            self.process.wait(lambda: "it runs", within)


def request(body: bytes, upto: int | None = None) -> bytes:
    """Return a request as bytes, up to an offset of its body."""
    head = f"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + body[:upto]


async def read_response(reader: asyncio.StreamReader) -> tuple[bytes, dict[str, Any]]:
    """Return the head and the parsed body of a response."""
    async with asyncio.timeout(30):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return head, json.loads(await reader.readexactly(length))
