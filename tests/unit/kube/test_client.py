"""The CAs of clusters that are older than what Python requires of them today."""

from __future__ import annotations

import ssl
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from certificates import CA, alternatives, named, sign
from certs.authority import create_authority
from certs.keypair import Names
from clusters import around_a_pod
from webhook.kube.client import KubeApi
from webhook.kube.credentials import Load, in_cluster, kubeconfig
from webhook.kube.errors import ConfigurationError, UnreachableError

Way = Callable[[Path, TestServer], Load]


def write_old_cluster_certificates(directory: Path) -> None:
    """Write a CA and a serving certificate as EKS made them until Kubernetes 1.16.

    They lack the key identifiers that RFC 5280 (4.2.1) requires.
    """
    now = datetime.now(UTC)
    begin, end = now - timedelta(hours=1), now + timedelta(hours=1)
    authority = sign(named("kubernetes"), CA, begin=begin, end=end)
    address = alternatives(Names.parse([], ["127.0.0.1"]))
    leaf = sign(named("kube-apiserver"), address, begin=begin, end=end, signer=authority)
    (directory / "ca.crt").write_bytes(authority.certificate_pem)
    (directory / "tls.crt").write_bytes(leaf.certificate_pem)
    (directory / "tls.key").write_bytes(leaf.key_pem)


@pytest.fixture
async def old_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TestServer]:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="old")

    write_old_cluster_certificates(tmp_path)
    async with around_a_pod(tmp_path, answer, monkeypatch) as server:
        yield server


@pytest.fixture
def strict_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let any Python require of CAs what 3.13 requires."""
    make = ssl.create_default_context

    def strict(*args: object, **options: object) -> ssl.SSLContext:
        context = make(*args, **options)  # type: ignore[arg-type]
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)


def by_service_account(directory: Path, _server: TestServer) -> Load:
    (directory / "token").write_text("token")
    return in_cluster(directory)


def by_kubeconfig(directory: Path, server: TestServer) -> Load:
    return _kubeconfig(directory, server, {"certificate-authority": str(directory / "ca.crt")})


def without_verification(directory: Path, server: TestServer) -> Load:
    return _kubeconfig(directory, server, {"insecure-skip-tls-verify": True})


def _kubeconfig(directory: Path, server: TestServer, trust: dict[str, Any]) -> Load:
    path = directory / "kubeconfig"
    cluster = {"server": f"https://127.0.0.1:{server.port}", **trust}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "old",
        "clusters": [{"name": "old", "cluster": cluster}],
        "contexts": [{"name": "old", "context": {"cluster": "old", "user": "me"}}],
        "users": [{"name": "me", "user": {"token": "token"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return kubeconfig(path)


@pytest.mark.usefixtures("strict_verification")
@pytest.mark.parametrize("by", [by_service_account, by_kubeconfig, without_verification])
async def test_a_cluster_ca_without_key_identifiers_is_trusted(
    by: Way, old_cluster: TestServer, tmp_path: Path
) -> None:
    connection = KubeApi(by(tmp_path, old_cluster))
    assert await connection.get("/version", seconds=5) == b"old"
    await connection.close()


LATER = timedelta(minutes=5)


@pytest.mark.parametrize(
    ("date_header", "time"),
    [
        ("Sun, 01 Mar 2026 12:00:00 GMT", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("noon", None),
        ("Sun, 01 Mar 2026 12:00:00 -0000", None),
    ],
)
async def test_connection_time_is_the_date_header_of_the_api_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, date_header: str, time: datetime | None
) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(headers={"Date": date_header})

    write_old_cluster_certificates(tmp_path)
    async with around_a_pod(tmp_path, answer, monkeypatch) as server:
        connection = KubeApi(by_service_account(tmp_path, server))
        assert connection.clock.server_time() is None
        await connection.get("/version", seconds=5)
        measured = connection.clock.server_time()
        assert measured == time or (measured and time and timedelta(0) <= measured - time < LATER)
        await connection.close()


@pytest.mark.usefixtures("strict_verification")
async def test_a_certificate_of_another_ca_is_rejected(
    old_cluster: TestServer, tmp_path: Path
) -> None:
    load = by_service_account(tmp_path, old_cluster)
    write_old_cluster_certificates(tmp_path)
    connection = KubeApi(load)
    with pytest.raises(UnreachableError, match="certificate"):
        await connection.get("/version", seconds=5)
    await connection.close()


@pytest.mark.usefixtures("strict_verification")
@pytest.mark.parametrize("by", [by_service_account, by_kubeconfig])
async def test_a_replaced_cluster_ca_is_read_without_a_restart(
    by: Way, old_cluster: TestServer, tmp_path: Path
) -> None:
    """A kubelet writes the new one into the same file, as soon as the cluster has it."""
    file = tmp_path / "ca.crt"
    of_the_server = file.read_bytes()
    file.write_bytes(create_authority(datetime.now(UTC)).certificate_pem)
    connection = KubeApi(by(tmp_path, old_cluster))
    for _ in range(2):
        with pytest.raises(UnreachableError, match="certificate"):
            await connection.get("/version", seconds=5)
    file.write_bytes(of_the_server)
    assert await connection.get("/version", seconds=5) == b"old"
    await connection.close()


def by_plugin(directory: Path, command: str, *args: str) -> Load:
    """Return credentials of a plugin, for an address without a listener."""
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": command,
        "args": [*args],
        "interactiveMode": "Never",
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "far",
        "clusters": [{"name": "far", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": "far", "context": {"cluster": "far", "user": "me"}}],
        "users": [{"name": "me", "user": {"exec": plugin}}],
    }
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return kubeconfig(path)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("no-such-plugin",), "No such file or directory: 'no-such-plugin'"),
        (("sh", "-c", "echo log in first >&2; exit 3"), "process returned 3.*log in first"),
        (("echo", "hello"), "failed to decode process output"),
        (
            ("echo", '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "", "status": {}}'),
            "missing token",
        ),
    ],
)
async def test_a_plugin_without_credentials_is_an_error(
    command: tuple[str, ...], expected: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        await by_plugin(tmp_path, *command)()
    assert not caplog.records


async def test_the_token_of_a_plugin_is_used(tmp_path: Path) -> None:
    given = (
        '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",'
        ' "status": {"token": "secret"}}'
    )
    access = await by_plugin(tmp_path, "echo", given)()
    assert await access.authorization() == "Bearer secret"


async def test_without_the_kubernetes_client_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes.aio", None)
    with pytest.raises(
        ConfigurationError, match=r"with the extra kubeconfig: .* '\.\[kubeconfig\]'"
    ):
        await kubeconfig(Path("config"))()
