"""The server as a process: TLS, its ready line, a changed certificate, and a graceful end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509

from certs.files import issue
from reviewing import UID, encode, gpu_pod, patch_of, plain_pod, review

TESTS = Path(__file__).parents[1]
PATH = [entry for entry in (os.environ.get("PYTHONPATH"),) if entry]
GOOD = encode(review(plain_pod()))
JSON_TYPE = {"Content-Type": "application/json"}


@dataclass
class Server:
    """A server's process, and what it has logged so far."""

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
        """Open a connection that is spoken to byte by byte."""
        return await asyncio.open_connection("127.0.0.1", self.ready["port"], ssl=self.tls)


Start = Callable[..., Awaitable[Server]]


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """Return a folder with an authority and a serving leaf."""
    issue(["localhost"], ["127.0.0.1"], tmp_path, datetime.now(UTC))
    return tmp_path


@asynccontextmanager
async def server(pair: Path, **options: Any) -> AsyncIterator[Server]:
    """Run a server, which is killed at the end if it has not ended by then."""
    given = {
        "tls_cert": str(pair / "tls.crt"),
        "tls_key": str(pair / "tls.key"),
        "host": "127.0.0.1",
        "port": 0,
        "metrics_host": "127.0.0.1",
        "metrics_port": 0,
        "drain_seconds": 0,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(TESTS / "webhook" / "serving.py"),
        json.dumps(given | options),
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *PATH])},
        stderr=asyncio.subprocess.PIPE,
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


def request(body: bytes, upto: int | None = None) -> bytes:
    """Return a request as it goes over the wire, up to a byte of its body."""
    head = f"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + body[:upto]


async def read_response(reader: asyncio.StreamReader) -> tuple[bytes, dict[str, Any]]:
    """Return the head and the parsed body of a response."""
    async with asyncio.timeout(30):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return head, json.loads(await reader.readexactly(length))


async def test_reviews_are_answered_over_tls(pair: Path) -> None:
    async with ready_server(pair) as running, aiohttp.ClientSession() as session:
        url = f"{running.url}/mutate?timeout=3s"
        body = encode(review(gpu_pod()))
        async with session.post(url, data=body, headers=JSON_TYPE, ssl=running.tls) as response:
            answer = await response.json()
        assert answer["response"]["uid"] == UID
        assert patch_of(answer)
        assert await get(f"{running.operations}/readyz") == (200, "ok\n")
        _, metrics = await get(f"{running.operations}/metrics")
        assert "gpufence_certificate_expiry_timestamp_seconds " in metrics
        assert "_created" not in metrics


async def test_the_ready_line_says_what_is_served_where(pair: Path) -> None:
    async with ready_server(pair, policy_name="policy.yaml") as running:
        ready = running.ready
        assert ready["port"] != ready["metricsPort"]
        assert (ready["host"], ready["policy"]) == ("127.0.0.1", "policy.yaml")
        leaf = x509.load_pem_x509_certificate((pair / "tls.crt").read_bytes())
        assert ready["certificateExpires"] == leaf.not_valid_after_utc.isoformat()


async def test_what_is_no_tls_leaves_the_server_standing(pair: Path) -> None:
    async with ready_server(pair) as running:
        for sent in (b"", b"POST /validate HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"):
            _, writer = await asyncio.open_connection("127.0.0.1", running.ready["port"])
            writer.write(sent)
            writer.close()
            await writer.wait_closed()
        reader, writer = await running.connect()
        writer.write(request(GOOD))
        _, answer = await read_response(reader)
        assert answer["response"] == {"uid": UID, "allowed": True}
        writer.close()
        running.terminate()
        assert await running.ended() == 0
        await running.logged("stopped")
        assert "Traceback" not in running.rest
        assert not [line for line in running.lines if "traceback" in line]


async def test_a_new_certificate_is_served_without_a_restart(pair: Path) -> None:
    async with ready_server(pair, reload_seconds=0.05) as running:

        async def served() -> bytes:
            _, writer = await running.connect()
            certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.close()
            await writer.wait_closed()
            return bytes(certificate)

        before = await served()
        issue(["localhost"], ["127.0.0.1"], pair, datetime.now(UTC), force=True)
        running.tls.load_verify_locations(pair / "ca.crt")
        line = await running.logged("certificate reloaded")
        assert "now serving certificate" in line["detail"]
        after = await served()
        leaf = x509.load_pem_x509_certificate((pair / "tls.crt").read_bytes())
        assert x509.load_der_x509_certificate(after) == leaf
        assert before != after


async def test_a_certificate_that_cannot_be_used_is_not_served(pair: Path) -> None:
    async with ready_server(pair, reload_seconds=0.02) as running:
        (pair / "tls.crt").write_text("no certificate")
        line = await running.logged("certificate refused")
        assert line["level"] == "warning"
        reader, writer = await running.connect()
        writer.write(request(GOOD))
        _, answer = await read_response(reader)
        assert answer["response"]["allowed"]
        writer.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_idle_server_ends_at_once(pair: Path, number: signal.Signals) -> None:
    async with ready_server(pair) as running:
        running.process.send_signal(number)
        assert await running.ended() == 0
        await running.logged("stopped")


async def test_while_it_drains_it_serves_but_is_not_ready_and_keeps_no_connection(
    pair: Path,
) -> None:
    async with ready_server(pair, drain_seconds=60) as running:
        reader, writer = await running.connect()
        writer.write(request(GOOD))
        head, _ = await read_response(reader)
        assert b"connection: close" not in head.lower()

        running.terminate()
        await running.logged("draining")
        assert await get(f"{running.operations}/readyz") == (503, "shutting down\n")
        assert await get(f"{running.operations}/healthz") == (200, "ok\n")

        # On the connection that was there before, and on one that only comes now.
        writer.write(request(GOOD))
        newer_reader, newer_writer = await running.connect()
        newer_writer.write(request(GOOD))
        for each_reader, each_writer in ((reader, writer), (newer_reader, newer_writer)):
            head, answer = await read_response(each_reader)
            assert b"connection: close" in head.lower()
            assert answer["response"] == {"uid": UID, "allowed": True}
            assert await each_reader.read() == b""
            each_writer.close()

        running.terminate()
        assert await running.ended() == 0


async def test_a_request_that_is_under_way_is_finished_before_the_end(pair: Path) -> None:
    async with ready_server(pair) as running:
        reader, writer = await running.connect()
        writer.write(request(GOOD, upto=100))
        await writer.drain()
        # That the server has begun with it is not to be seen from outside, but what comes later is
        # answered later.
        other_reader, other_writer = await running.connect()
        other_writer.write(request(GOOD))
        await read_response(other_reader)

        running.terminate()
        await running.logged("draining")
        # By the time that this is answered, nothing but the request keeps the server alive.
        assert await get(f"{running.operations}/readyz") == (503, "shutting down\n")
        writer.write(GOOD[100:])
        head, answer = await read_response(reader)
        assert b"connection: close" in head.lower()
        assert answer["response"] == {"uid": UID, "allowed": True}
        assert await running.ended() == 0
        writer.close()
        other_writer.close()


async def test_a_request_that_never_comes_to_an_end_is_not_waited_for_for_ever(pair: Path) -> None:
    async with ready_server(pair, grace_seconds=0.1) as running:
        _, writer = await running.connect()
        # Its caller would wait for half a minute.
        writer.write(request(GOOD, upto=100).replace(b"/validate", b"/validate?timeout=30s"))
        await writer.drain()
        await get(f"{running.operations}/readyz")
        running.terminate()
        async with asyncio.timeout(15):
            assert await running.ended() == 0
        writer.close()


async def test_a_port_that_is_taken_is_named_with_the_option_to_change(pair: Path) -> None:
    async with ready_server(pair) as first:
        taken = first.ready["metricsPort"]
        async with server(pair, metrics_port=taken) as second:
            assert await second.ended() == 1
            assert second.process.stderr is not None
            problem = (await second.process.stderr.read()).decode()
        assert problem.startswith(f"ListenError: 127.0.0.1:{taken}: cannot be listened on (")
        assert problem.endswith(". Choose another --metrics-port, or 0 for a free one.\n")


async def test_a_key_pair_that_is_not_there_ends_it_before_it_listens(tmp_path: Path) -> None:
    async with server(tmp_path) as running:
        assert await running.ended() == 1
        assert running.process.stderr is not None
        problem = (await running.process.stderr.read()).decode()
    assert problem.startswith(f"StorageError: {tmp_path / 'tls.crt'}: does not exist.")
