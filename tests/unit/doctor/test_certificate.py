"""The doctor's lines on certificates, in addition to those on a real installation."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs.authority import create_authority, issue_leaf
from certs.keypair import KeyPair
from certs.names import Names
from certs.secret import Stored
from policies.document.shipped import shipped_policy
from webhook.cli.options.serve_cluster import names_of
from webhook.doctor.certificate import check, check_served
from webhook.doctor.installation import Installation
from webhook.doctor.line import ok
from webhook.registration.configurations import Registration, configurations

NOW = datetime.now(UTC)
LOOPBACK = "127.0.0.1"


@pytest.fixture
def authority() -> KeyPair:
    return create_authority(NOW, timedelta(days=1))


def registered(url: str, authority: KeyPair) -> Installation:
    """Return an installation that is registered by a URL, with a CA to trust."""
    bundle = base64.b64encode(authority.certificate_pem).decode()
    made = configurations(shipped_policy(), Registration(url=url, ca_bundle=bundle))
    return Installation("fence", "gpufence", configurations={each["kind"]: each for each in made})


@contextmanager
def never_closing(authority: KeyPair, directory: Path) -> Iterator[int]:
    """Serve TLS on a port of loopback to one client, and read nothing after the handshake."""
    leaf = issue_leaf(authority, Names.parse([], [LOOPBACK]), NOW, timedelta(hours=1))
    (directory / "tls.pem").write_bytes(leaf.key_pem + leaf.certificate_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "tls.pem")
    over = threading.Event()
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server((LOOPBACK, 0)))
        listening.settimeout(10)

        def serve() -> None:
            plain, _ = listening.accept()
            with context.wrap_socket(plain, server_side=True):
                over.wait()

        thread = threading.Thread(target=serve)
        thread.start()
        stack.callback(thread.join)
        stack.callback(over.set)
        yield listening.getsockname()[1]


async def test_a_peer_that_keeps_the_connection_open_does_not_block_the_check(
    authority: KeyPair, tmp_path: Path
) -> None:
    with never_closing(authority, tmp_path) as port:
        async with asyncio.timeout(10):
            line = await check_served(registered(f"https://{LOOPBACK}:{port}", authority))
    assert line == ok("served certificate", "trusted at 1 address")


async def test_comments_next_to_a_ca_are_ignored(authority: KeyPair, tmp_path: Path) -> None:
    """API servers take it so: the caBundle is validated as PEM, not as ASCII."""
    described = replace(
        authority, certificate_pem="# von Jörg\n".encode() + authority.certificate_pem
    )
    with never_closing(authority, tmp_path) as port:
        line = await check_served(registered(f"https://{LOOPBACK}:{port}", described))
    assert line == ok("served certificate", "trusted at 1 address")


async def test_a_ca_bundle_with_the_serving_certificate_is_trusted(
    authority: KeyPair, tmp_path: Path
) -> None:
    """API servers accept any caBundle: an intermediate CA, or a serving certificate."""
    with never_closing(authority, tmp_path) as port:
        leaf = KeyPair((tmp_path / "tls.pem").read_bytes(), b"")
        line = await check_served(registered(f"https://{LOOPBACK}:{port}", leaf))
    assert line == ok("served certificate", "trusted at 1 address")


async def test_a_ca_bundle_without_a_valid_certificate_fails(authority: KeyPair) -> None:
    """An API server stores it, and then reaches no replica."""
    cut = replace(authority, certificate_pem=authority.certificate_pem[:200])
    line = await check_served(registered(f"https://{LOOPBACK}:1", cut))
    assert line.status == "fail"
    assert "caBundle contains no valid PEM certificate" in line.detail
    assert "registering replicas write it" in line.remediation


@pytest.mark.parametrize(
    ("url", "names", "missing"),
    [
        ("https://10.0.0.7:8443", Names.parse([], ["10.0.0.7"]), ""),
        ("https://10.0.0.7:8443", Names.parse([], ["10.0.0.8"]), "10.0.0.7"),
        ("https://10.0.0.7:8443", Names.parse(["fence.example"]), "10.0.0.7"),
        ("https://[fd00::7]:8443", Names.parse([], ["fd00:0:0:0:0:0:0:7"]), ""),
        ("https://[fd00::7]:8443", Names.parse([], ["10.0.0.7"]), "fd00::7"),
        ("https://fence.example", Names.parse(["fence.example"], ["10.0.0.7"]), ""),
        ("https://fence.example", Names.parse([], ["10.0.0.7"]), "fence.example"),
    ],
)
def test_a_certificate_without_the_registered_host_fails(
    url: str, names: Names, missing: str, authority: KeyPair
) -> None:
    found = registered(url, authority)
    found.stored = Stored(authority, issue_leaf(authority, names, NOW, timedelta(hours=1)))
    found.secret = {}
    assert found.address is not None
    line, _ = check(found, names_of(found.address), NOW)
    if missing:
        assert line.status == "fail"
        assert line.detail == f"the serving certificate lacks {missing}"
    else:
        assert line.status == "ok"
