"""The way to an API server: a kubeconfig, or the service account of a Pod."""

from __future__ import annotations

import re
import ssl
import sys
import tomllib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from certificates import CA, alternatives, named, sign
from certs.authority import create_authority
from clusters import around_a_pod
from controlplane.kubeconfig import write
from paths import PROJECT
from webhook.kube.client import KubeApi
from webhook.kube.credentials import Load, in_cluster
from webhook.kube.errors import ConfigurationError, UnreachableError
from webhook.kube.kubeconfig import kubeconfig


async def problem_of(load: Load) -> str:
    with pytest.raises(ConfigurationError) as raised:
        await KubeApi(load).prepare()
    return str(raised.value)


async def test_a_missing_kubeconfig_is_reported_with_its_path(tmp_path: Path) -> None:
    problem = await problem_of(kubeconfig(tmp_path / "none"))
    assert problem == f"{tmp_path}/none: no such file; set the path of a kubeconfig file"


KUBECONFIG = """
contexts: [{{name: a, context: {{cluster: {}, user: u}}}}]
current-context: a
clusters: [{{name: c, cluster: {{server: {}}}}}]
users: [{{name: u, user: {{token: t}}}}]
"""


async def test_an_invalid_kubeconfig_is_reported_with_its_path(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    path = tmp_path / "kubeconfig"
    invalid = "it is not a valid kubeconfig; "
    cure = "see what kubectl config view and kubectl config get-contexts print"
    for text, reason in (
        *(("", invalid), ("[]", invalid), ("5", invalid)),
        ("current-context: x", "it has no "),
        (KUBECONFIG.format("c", "a"), "server: a is not a URL; write https://"),
        (KUBECONFIG.format("d", "https://a"), "it has no cluster d; "),
        (KUBECONFIG.format("c", "https://a, certificate-authority: /no"), "no such file: /no"),
        (
            KUBECONFIG.format("c", "https://a, certificate-authority-data: bm8="),
            "its CA or client certificate is no valid PEM (",
        ),
    ):
        with subtests.test(text=text):
            path.write_text(text)
            problem = await problem_of(kubeconfig(path))
            assert problem.startswith(f"{path}: cannot be used: {reason}")
            assert problem.endswith(cure)


async def test_a_kubeconfig_that_is_not_yaml_is_reported_with_the_place(tmp_path: Path) -> None:
    (path := tmp_path / "kubeconfig").write_text("a: [b\nc: d")
    problem = await problem_of(kubeconfig(path))
    assert problem == f"{path}:2:2: is not YAML: expected ',' or ']', but got ':'"


async def test_an_unknown_context_is_reported_with_those_that_exist(tmp_path: Path) -> None:
    path = write(tmp_path / "kubeconfig", "http://127.0.0.1:9", {})
    name = yaml.safe_load(path.read_text())["contexts"][0]["name"]
    problem = await problem_of(kubeconfig(path, "other"))
    assert problem == f"{path}: has no context other; it has {name}"
    path.write_text(path.read_text().replace("current-context", "current"))
    assert f"sets no current-context; set --context to {name}; " in await problem_of(
        kubeconfig(path)
    )


async def test_without_the_kubernetes_client_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes.aio", None)
    assert "with the extra kubeconfig: " in await problem_of(kubeconfig(Path("config")))


def by_plugin(directory: Path, command: str, *args: str) -> Load:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": command,
        "args": [*args],
        "interactiveMode": "Never",
    }
    return kubeconfig(write(directory / "kubeconfig", "http://127.0.0.1:9", {"exec": plugin}))


CREDENTIAL = (
    '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {%s}}'
)


async def test_a_plugin_without_credentials_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    for command, expected in (
        (("no-such-plugin",), "cannot be used: No such file or directory: 'no-such-plugin'"),
        (("sh", "-c", "echo log in first >&2; exit 3"), "log in first"),
        (("echo", "hello"), "failed to decode process output"),
        (("echo", CREDENTIAL % ""), "missing token"),
    ):
        with subtests.test(command=command):
            assert expected in await problem_of(by_plugin(tmp_path, *command))
    assert not caplog.records


async def test_the_token_of_a_plugin_is_used(tmp_path: Path) -> None:
    access = await by_plugin(tmp_path, "echo", CREDENTIAL % '"token": "secret"')()
    assert await access.authorization() == "Bearer secret"


async def test_in_cluster_access_outside_of_a_pod_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert await problem_of(in_cluster()) == (
        "cannot use a service account: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT "
        "are not set. In a Pod, mount the token of its service account; elsewhere, set a "
        "kubeconfig file"
    )


def write_certificates(directory: Path) -> None:
    """Write a CA and a serving certificate as EKS made them until Kubernetes 1.16.

    They lack the key identifiers that RFC 5280 (4.2.1) requires.
    """
    now = datetime.now(UTC)
    begin, end = now - timedelta(hours=1), now + timedelta(hours=1)
    authority = sign(named("kubernetes"), CA, begin=begin, end=end)
    address = alternatives(["127.0.0.1"])
    leaf = sign(named("kube-apiserver"), address, begin=begin, end=end, signer=authority)
    (directory / "ca.crt").write_bytes(authority.certificate_pem)
    (directory / "tls.crt").write_bytes(leaf.certificate_pem)
    (directory / "tls.key").write_bytes(leaf.key_pem)


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TestServer]:
    """An API server that responds with the request, and a Pod whose service account is tmp_path."""

    async def answer(request: web.Request) -> web.Response:
        text = f"{request.path_qs} {request.headers['Authorization']}"
        return web.Response(text=text, headers={"Date": "Sun, 01 Mar 2015 12:00:00 GMT"})

    write_certificates(tmp_path)
    (tmp_path / "token").write_text("first\n")
    async with around_a_pod(tmp_path, answer, monkeypatch) as server:
        yield server


@pytest.fixture
def account(server: TestServer, tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def strict_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify CAs in every Python as Python 3.13 does."""
    make = ssl.create_default_context

    def strict(*args: object, **options: object) -> ssl.SSLContext:
        context = make(*args, **options)  # type: ignore[arg-type]
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)


def by_service_account(directory: Path, _server: TestServer) -> Load:
    return in_cluster(directory)


def by_kubeconfig(directory: Path, server: TestServer) -> Load:
    address, user = f"https://127.0.0.1:{server.port}", {"token": "first"}
    return kubeconfig(write(directory / "kubeconfig", address, user, directory / "ca.crt"))


def without_verification(directory: Path, server: TestServer) -> Load:
    address, user = f"https://127.0.0.1:{server.port}", {"token": "first"}
    return kubeconfig(write(directory / "kubeconfig", address, user))


@pytest.mark.usefixtures("strict_verification")
async def test_a_cluster_ca_without_key_identifiers_is_trusted(
    server: TestServer, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for by in (by_service_account, by_kubeconfig, without_verification):
        with subtests.test(by=by):
            connection = KubeApi(by(tmp_path, server))
            assert await connection.get("/version", seconds=30) == b"/version Bearer first"
            await connection.close()


@pytest.mark.usefixtures("strict_verification")
@pytest.mark.parametrize("by", [by_service_account, by_kubeconfig])
async def test_a_replaced_cluster_ca_is_read_without_a_restart(
    by: Callable[[Path, TestServer], Load], server: TestServer, tmp_path: Path
) -> None:
    """The kubelet writes a new CA of the cluster into the same file."""
    file = tmp_path / "ca.crt"
    of_the_server = file.read_bytes()
    file.write_bytes(create_authority(datetime.now(UTC)).certificate_pem)
    connection = KubeApi(by(tmp_path, server))
    for _ in range(2):
        with pytest.raises(UnreachableError, match="certificate"):
            await connection.get("/version", seconds=30)
    file.write_bytes(of_the_server)
    by(tmp_path, server)
    assert await connection.get("/version", seconds=30) == b"/version Bearer first"
    await connection.close()


async def test_a_renewed_service_account_token_is_used(account: Path) -> None:
    connection = KubeApi(in_cluster(account))
    query = {"labelSelector": "a in (b)"}
    shown = await connection.get("/api/v1/pods", query, seconds=30)
    assert shown == b"/api/v1/pods?labelSelector=a+in+(b) Bearer first"
    (account / "token").write_text("second")
    assert await connection.get("/version", seconds=30) == b"/version Bearer second"
    assert connection.clock.now().year == 2015
    await connection.close()


@pytest.mark.parametrize("name", ["token", "ca.crt"])
async def test_a_missing_service_account_file_is_reported(account: Path, name: str) -> None:
    (account / name).unlink()
    problem = await problem_of(in_cluster(account))
    assert problem.startswith(f"cannot use a service account: {account}: ")
    assert "No such file" in problem


async def test_an_empty_service_account_token_is_reported(account: Path) -> None:
    (account / "token").write_text("\n")
    problem = await problem_of(in_cluster(account))
    assert problem.startswith(f"cannot use a service account: {account / 'token'} is empty. ")


async def test_an_ipv6_address_is_written_in_brackets(
    account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    assert await KubeApi(in_cluster(account)).host() == "https://[fd00::1]:443"


def test_the_install_command_of_a_page_includes_the_kubernetes_client() -> None:
    found = {
        page: re.findall(r"(?m)^\$ .*pip install (.*)$", (PROJECT / page).read_text())
        for page in ("README.md", "docs/get-started/tutorial.md")
    }
    assert found == {page: ["'.[kubeconfig]'"] for page in found}
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert any("kubernetes" in each for each in extras["optional-dependencies"]["kubeconfig"])
