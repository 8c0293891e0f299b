"""The server as a process: TLS, its ready line, a changed certificate, and a graceful end."""

from __future__ import annotations

import asyncio
import signal
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
from cryptography import x509

from certs.files import issue
from reviewing import UID, encode, gpu_pod, patch_of, plain_pod, review
from served_process import Server, get, read_response, readiness, ready_server, request, server

GOOD = encode(review(plain_pod()))
JSON_TYPE = {"Content-Type": "application/json"}


async def assert_reviews_are_answered(running: Server) -> None:
    """Send a review on a connection of its own."""
    reader, writer = await running.connect()
    writer.write(request(GOOD))
    _, answer = await read_response(reader)
    assert answer["response"] == {"uid": UID, "allowed": True}
    writer.close()


async def test_reviews_are_answered_over_tls(pair: Path) -> None:
    async with ready_server(pair) as running, aiohttp.ClientSession() as session:
        url = f"{running.url}/mutate?timeout=3s"
        body = encode(review(gpu_pod()))
        async with session.post(url, data=body, headers=JSON_TYPE, ssl=running.tls) as response:
            answer = await response.json()
        assert answer["response"]["uid"] == UID
        assert patch_of(answer)
        assert await readiness(running.operations) == (200, "ok")
        _, metrics = await get(f"{running.operations}/metrics")
        assert "gpufence_certificate_expiry_timestamp_seconds " in metrics
        assert "_created" not in metrics


async def test_a_client_without_tls_does_not_stop_the_server(pair: Path) -> None:
    async with ready_server(pair) as running:
        for sent in (b"", b"POST /validate HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"):
            _, writer = await asyncio.open_connection("127.0.0.1", running.ready["port"])
            writer.write(sent)
            writer.close()
            await writer.wait_closed()
        await assert_reviews_are_answered(running)
        running.terminate()
        assert await running.ended() == 0
        await running.logged("stopped")
        assert "Traceback" not in running.rest
        assert not [line for line in running.lines if "traceback" in line]


async def test_a_new_certificate_is_served_without_a_restart_once_it_is_valid(pair: Path) -> None:
    async with ready_server(pair, reload_seconds=0.02) as running:
        (pair / "tls.crt").write_text("no certificate")
        line = await running.logged("certificate reload failed")
        assert line["level"] == "warning"
        await assert_reviews_are_answered(running)
        status, text = await get(f"{running.operations}/readyz")
        assert status == 200
        problem = f"{pair / 'tls.crt'}: contains no valid"
        assert text.startswith(f"ok\ncertificate reload: {problem}")
        _, exposed = await get(f"{running.operations}/metrics")
        assert 'gpufence_task_failures_total{task="certificate reload"}' in exposed
        issue(["localhost"], ["127.0.0.1"], pair, datetime.now(UTC), force=True)
        running.tls.load_verify_locations(pair / "ca.crt")
        await running.logged("certificate reloaded")
        assert await readiness(running.operations) == (200, "ok")
        _, writer = await running.connect()
        served = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        leaf = x509.load_pem_x509_certificate((pair / "tls.crt").read_bytes())
        assert x509.load_der_x509_certificate(served) == leaf
        # As SIGTERM does in the other tests.
        running.process.send_signal(signal.SIGINT)
        assert await running.ended() == 0
        await running.logged("stopped")


async def test_a_draining_server_serves_is_unready_and_closes_connections(
    pair: Path,
) -> None:
    async with ready_server(pair, drain_seconds=60) as running:
        reader, writer = await running.connect()
        writer.write(request(GOOD))
        head, _ = await read_response(reader)
        assert b"connection: close" not in head.lower()

        running.terminate()
        await running.logged("draining")
        assert await readiness(running.operations) == (503, "shutting down")
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


async def test_a_request_in_flight_is_finished_before_exit(pair: Path) -> None:
    async with ready_server(pair) as running:
        reader, writer = await running.connect()
        writer.write(request(GOOD, upto=100))
        await writer.drain()
        # The test cannot see that the server has begun with it, but what comes later is
        # answered later.
        await assert_reviews_are_answered(running)
        running.terminate()
        await running.logged("draining")
        # By the time that this is answered, nothing but the request keeps the server alive.
        assert await readiness(running.operations) == (503, "shutting down")
        writer.write(GOOD[100:])
        head, answer = await read_response(reader)
        assert b"connection: close" in head.lower()
        assert answer["response"] == {"uid": UID, "allowed": True}
        assert await running.ended() == 0
        writer.close()


async def test_an_unfinished_request_delays_exit_only_for_the_timeout(pair: Path) -> None:
    async with ready_server(pair, timeout_seconds=0.5) as running:
        _, writer = await running.connect()
        # Its caller would wait for half a minute.
        writer.write(request(GOOD, upto=100).replace(b"/validate", b"/validate?timeout=30s"))
        await writer.drain()
        await get(f"{running.operations}/readyz")
        running.terminate()
        async with asyncio.timeout(15):
            assert await running.ended() == 0
        writer.close()


async def test_a_port_in_use_is_reported_with_the_option_to_change(pair: Path) -> None:
    async with ready_server(pair) as first:
        taken = first.ready["metricsPort"]
        async with server(pair, metrics_port=taken) as second:
            assert await second.ended() == 1
            assert second.process.stderr is not None
            problem = (await second.process.stderr.read()).decode()
        assert problem.startswith(f"ListenError: cannot listen on 127.0.0.1:{taken} (")
        assert problem.endswith(". Choose another --metrics-port, or 0 for a free port.\n")


async def test_an_unread_log_does_not_block_the_server(pair: Path) -> None:
    async with ready_server(pair) as running:
        reader, writer = await running.connect()
        # More than the pipe and the stream's buffer hold, with nothing that reads them.
        for _ in range(2000):
            writer.write(request(b"{}"))
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split()[0]))
        writer.close()
        await assert_reviews_are_answered(running)
        running.terminate()
        assert await running.ended() == 0
