"""A server in a separate process, on loopback, over TLS."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from certs import CertificateError
from webhook.serve.http.listener import ListenError
from webhook.serve.replica import ServeOptions, serve
from webhook.tools.documents.policy_files import load_policy, policy_name

SUPPORT = Path(__file__).parent
PATH = [entry for entry in (os.environ.get("PYTHONPATH"),) if entry]


@dataclass
class Server:
    """A server's process and its log so far."""

    process: asyncio.subprocess.Process
    tls: ssl.SSLContext
    lines: list[dict[str, Any]] = field(default_factory=list)
    rest: str = ""

    async def logged(self, event: str) -> dict[str, Any]:
        """Read the log until an event, and return its line."""
        assert self.process.stderr is not None
        async with asyncio.timeout(30):
            while text := await self.process.stderr.readline():
                if not text.startswith(b"{"):
                    self.rest += text.decode()
                    continue
                line: dict[str, Any] = json.loads(text)
                self.lines.append(line)
                if line["event"] == event:
                    return line
        raise AssertionError(f"{event!r} was never logged, but {self.lines} {self.rest}")

    @property
    def ready(self) -> dict[str, Any]:
        return next(line for line in self.lines if line["event"] == "ready")

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.ready['port']}"

    @property
    def operations(self) -> str:
        return f"http://127.0.0.1:{self.ready['metricsPort']}"

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    async def ended(self) -> int:
        async with asyncio.timeout(30):
            return await self.process.wait()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a raw connection."""
        return await asyncio.open_connection("127.0.0.1", self.ready["port"], ssl=self.tls)


@asynccontextmanager
async def server(
    pair: Path, *, start_new_session: bool = False, **options: Any
) -> AsyncIterator[Server]:
    """Run a server, and kill it at the end of the block if it still runs."""
    defaults = {
        "tls_cert": str(pair / "tls.crt"),
        "tls_key": str(pair / "tls.key"),
        "host": "127.0.0.1",
        "port": 0,
        "metrics_port": 0,
        "drain_seconds": 0,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        json.dumps(defaults | options),
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(SUPPORT), *PATH])},
        stderr=asyncio.subprocess.PIPE,
        start_new_session=start_new_session,
    )
    tls = ssl.create_default_context()
    if (pair / "ca.crt").exists():
        tls.load_verify_locations(pair / "ca.crt")
    try:
        yield Server(process, tls)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@asynccontextmanager
async def ready_server(pair: Path, **options: Any) -> AsyncIterator[Server]:
    async with server(pair, **options) as running:
        await running.logged("ready")
        yield running


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def readiness(operations: str) -> tuple[int, str]:
    """Return status and first line of /readyz; problems of a ready replica follow it."""
    status, text = await get(f"{operations}/readyz")
    return status, text.partition("\n")[0]


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


def main(text: str) -> int:
    """Run the server with its options as JSON."""
    options = json.loads(text)
    for key in ("tls_cert", "tls_key"):
        options[key] = Path(options[key])
    try:
        path = options.pop("policy", None)
        policy = load_policy(path)
        return serve(ServeOptions(policy_name=policy_name(path), policy=policy, **options))
    except (CertificateError, ListenError) as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
