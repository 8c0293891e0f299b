"""Events of the serving certificate: what is new, and once."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs.files import issue
from certs.reload import file_source
from webhook.http.tls import ServedCertificate

NOW = datetime.now(UTC)


def issue_into(directory: Path) -> None:
    issue(["localhost"], [], directory, NOW, leaf_lifetime=timedelta(days=90), force=True)


def test_each_certificate_change_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="gpufence")

    def logged_events() -> list[str]:
        """Poll three times, and return the events since the last call."""
        caplog.clear()
        for _ in range(3):
            served.poll()
        return [f"{record.levelname} {record.getMessage()}" for record in caplog.records]

    issue_into(tmp_path)
    rejected: list[str] = []
    source = file_source(tmp_path / "tls.crt", tmp_path / "tls.key")
    served = ServedCertificate(
        source, lambda: NOW, rejected=lambda: rejected.append(served.problem)
    )
    assert logged_events() == []
    served.load()
    assert logged_events() == []
    (tmp_path / "tls.crt").write_text("no certificate")
    assert logged_events() == ["WARNING certificate rejected"]
    (tmp_path / "tls.crt").unlink()
    assert logged_events() == ["WARNING certificate rejected"]
    # A continuing failure is reported once, and counted each time.
    assert ["does not exist" in problem for problem in rejected] == [False] * 3 + [True] * 3
    assert served.problem == rejected[-1]
    issue_into(tmp_path)
    assert logged_events() == ["INFO certificate reloaded"]
    assert served.problem == ""


def test_the_expiry_is_known_once_the_certificate_is_loaded(tmp_path: Path) -> None:
    issue_into(tmp_path)
    served = ServedCertificate(file_source(tmp_path / "tls.crt", tmp_path / "tls.key"), lambda: NOW)
    # What is missing has not expired: a replica without one yet says that it is starting.
    assert served.expires > NOW + timedelta(days=365_000)
    served.load()
    assert abs(served.expires - (NOW + timedelta(days=90))) < timedelta(seconds=2)
    assert served.chain() == (tmp_path / "tls.crt").read_bytes()


async def test_a_returning_client_resumes_its_tls_session(tmp_path: Path) -> None:
    """Most of what a handshake costs the server is then spared."""
    issue_into(tmp_path)
    served = ServedCertificate(file_source(tmp_path / "tls.crt", tmp_path / "tls.key"), lambda: NOW)
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"!")
        await writer.drain()
        writer.close()

    def call(port: int, session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool]:
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as secured,
        ):
            # The ticket comes after the handshake, with the first bytes.
            assert secured.recv(1) == b"!"
            return secured.session, bool(secured.session_reused)

    async with await asyncio.start_server(greet, "127.0.0.1", 0, ssl=served.load()) as server:
        port = server.sockets[0].getsockname()[1]
        session, resumed = await asyncio.to_thread(call, port, None)
        assert not resumed
        assert (await asyncio.to_thread(call, port, session))[1]
