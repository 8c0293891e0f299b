"""The server as a process: TLS, its ready line, a changed certificate, and a graceful end."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509

from certificates import issue
from controlplane.errors import ControlPlaneError
from controlplane.forked import QUICK
from controlplane.gpufence import COMMAND, HOST
from controlplane.poll import until
from reviewing import UID, encode, gpu_pod, patch_of, plain_pod, review
from served_process import Served, read_response, request

GOOD = encode(review(plain_pod()))
JSON_TYPE = {"Content-Type": "application/json"}


async def assert_reviews_are_answered(running: Served) -> None:
    """Send a review on a connection of its own."""
    reader, writer = await running.connect()
    writer.write(request(GOOD))
    _, answer = await read_response(reader)
    assert answer["response"] == {"uid": UID, "allowed": True}
    writer.close()


async def test_reviews_are_answered_over_tls(pair: Path) -> None:
    with Served(pair) as running:
        url, body = f"{running.url}/mutate?timeout=3s", encode(review(gpu_pod()))
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=body, headers=JSON_TYPE, ssl=running.tls) as response,
        ):
            answer = await response.json()
        assert answer["response"]["uid"] == UID
        assert patch_of(answer)
        assert running.readiness() == (200, "ok")
        _, metrics = running.get("/metrics")
        assert "gpufence_certificate_expiry_timestamp_seconds " in metrics
        assert "_created" not in metrics


async def test_a_client_without_tls_does_not_stop_the_server(pair: Path) -> None:
    with Served(pair) as running:
        for sent in (b"", b"POST /validate HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"):
            _, writer = await asyncio.open_connection(HOST, running.port)
            writer.write(sent)
            writer.close()
            await writer.wait_closed()
        await assert_reviews_are_answered(running)
        running.process.terminate()
        running.check_end()
        assert running.events("stopped")
        log = running.process.log.read_text()
        assert "traceback" not in log.lower()


async def test_a_new_certificate_is_served_without_a_restart_once_it_is_valid(pair: Path) -> None:
    with Served(pair, "--reload-seconds=0.02") as running:
        (pair / "tls.crt").write_text("no certificate")
        assert running.logged("certificate reload failed")["level"] == "warning"
        await assert_reviews_are_answered(running)
        problem = f"{pair / 'tls.crt'}: contains no valid"
        status, text = running.get("/readyz")
        assert status == 200
        assert text.startswith(f"ok\ncertificate reload: {problem}")
        _, exposed = running.get("/metrics")
        assert 'gpufence_task_failures_total{task="certificate reload"}' in exposed
        issue(["localhost", "127.0.0.1"], pair)
        running.logged("certificate reloaded")
        assert running.readiness() == (200, "ok")
        leaf = x509.load_pem_x509_certificate((pair / "tls.crt").read_bytes())
        assert running.certificate((pair / "ca.crt").read_bytes()) == leaf
        # As SIGTERM does in the other tests.
        assert running.process.pid is not None
        os.kill(running.process.pid, signal.SIGINT)
        running.check_end()
        assert running.events("stopped")


async def test_a_draining_server_serves_is_unready_and_closes_connections(pair: Path) -> None:
    with Served(pair, "--drain-seconds=60") as running:
        reader, writer = await running.connect()
        writer.write(request(GOOD))
        head, _ = await read_response(reader)
        assert b"connection: close" not in head.lower()

        running.process.terminate()
        running.logged("draining")
        assert running.readiness() == (503, "shutting down")
        assert running.get("/healthz") == (200, "ok\n")

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

        running.process.terminate()
        running.check_end()


async def test_a_request_in_flight_is_finished_before_exit(pair: Path) -> None:
    with Served(pair) as running:
        reader, writer = await running.connect()
        writer.write(request(GOOD, upto=100))
        await writer.drain()
        # The test cannot see that the server has begun with it, but what comes later is
        # answered later.
        await assert_reviews_are_answered(running)
        running.process.terminate()
        running.logged("draining")
        # By the time that this is answered, nothing but the request keeps the server alive.
        assert running.readiness() == (503, "shutting down")
        writer.write(GOOD[100:])
        head, answer = await read_response(reader)
        assert b"connection: close" in head.lower()
        assert answer["response"] == {"uid": UID, "allowed": True}
        running.check_end()
        writer.close()


async def test_an_unfinished_request_delays_exit_only_for_the_timeout(pair: Path) -> None:
    with Served(pair, "--timeout-seconds=1") as running:
        _, writer = await running.connect()
        # Its caller would wait for half a minute.
        writer.write(request(GOOD, upto=100).replace(b"/validate", b"/validate?timeout=30s"))
        await writer.drain()
        running.get("/readyz")
        running.process.terminate()
        running.check_end(within=15)
        writer.close()


def test_a_port_in_use_is_reported_with_the_option_to_change(pair: Path) -> None:
    with Served(pair) as first:
        second = Served(pair, f"--port={first.port}")
        problem = (
            rf"cannot listen on {HOST}:{first.port} \(.*\)\. Choose another --port, or 0 for a "
        )
        with pytest.raises(ControlPlaneError, match=problem), second:
            pass


async def test_an_unread_log_does_not_block_the_server(pair: Path) -> None:
    running = Served(pair)
    command = [str(COMMAND), *running.process.command[len(QUICK) :]]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        until(lambda: not running.unready(), "the replica")
        reader, writer = await running.connect()
        # More than the pipe and the stream's buffer hold, with nothing that reads them.
        for _ in range(2000):
            writer.write(request(b"{}"))
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split()[0]))
        writer.close()
        await assert_reviews_are_answered(running)
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
