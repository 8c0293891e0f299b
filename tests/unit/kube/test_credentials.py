"""The way to an API server: a kubeconfig, or the service account of a Pod."""

from __future__ import annotations

import errno
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web

from certs.files import issue
from clusters import around_a_pod
from fake_apiserver import FakeApiServer
from webhook.kube.client import KubeApi
from webhook.kube.credentials import in_cluster, kubeconfig
from webhook.kube.errors import ConfigurationError, UnreachableError


async def problem_of(connection: KubeApi) -> str:
    with pytest.raises(ConfigurationError) as raised:
        await connection.prepare()
    return str(raised.value)


async def test_a_missing_kubeconfig_is_reported_with_its_path(tmp_path: Path) -> None:
    problem = await problem_of(KubeApi(kubeconfig(tmp_path / "none")))
    assert problem == (f"{tmp_path}/none: no such file; set the path of a kubeconfig file")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is not a valid kubeconfig; "),
        ("[]", "it is not a valid kubeconfig; "),
        ("5", "it is not a valid kubeconfig; "),
        ("a: [", "while parsing"),
        ("current-context: x", "Invalid kube-config file. Expected "),
    ],
)
async def test_an_invalid_kubeconfig_is_reported_with_its_path(
    tmp_path: Path, text: str, reason: str
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    problem = await problem_of(KubeApi(kubeconfig(path)))
    assert problem.startswith(f"{path}: cannot be used: {reason}")
    assert problem.endswith("see what kubectl config view and kubectl config get-contexts print")


async def test_an_unknown_context_is_reported_with_its_name(tmp_path: Path) -> None:
    path = FakeApiServer().kubeconfig(tmp_path / "kubeconfig")
    problem = await problem_of(KubeApi(kubeconfig(path, "other")))
    assert problem.startswith(f"{path}, context other: cannot be used: ")
    assert "Expected object with name other in" in problem


async def test_in_cluster_access_outside_of_a_pod_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    problem = await problem_of(KubeApi(in_cluster()))
    assert problem == (
        "cannot use a service account: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT "
        "are not set. In a Pod, mount the token of its service account; elsewhere, set a "
        "kubeconfig file"
    )


@pytest.fixture
async def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """What a kubelet gives to a container, and an API server that answers with what it is shown."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=f"{request.path_qs} {request.headers['Authorization']}")

    issue(["localhost"], ["127.0.0.1"], tmp_path, datetime.now(UTC))
    (tmp_path / "token").write_text("first\n")
    async with around_a_pod(tmp_path, answer, monkeypatch):
        yield tmp_path


async def test_a_renewed_service_account_token_is_used(
    account: Path,
) -> None:
    connection = KubeApi(in_cluster(account))
    query = {"labelSelector": "a in (b)"}
    shown = await connection.get("/api/v1/pods", query, seconds=5)
    assert shown == b"/api/v1/pods?labelSelector=a+in+(b) Bearer first"
    (account / "token").write_text("second")
    assert await connection.get("/version", seconds=5) == b"/version Bearer second"
    await connection.close()


@pytest.mark.parametrize("name", ["token", "ca.crt"])
async def test_a_missing_service_account_file_is_reported(account: Path, name: str) -> None:
    (account / name).unlink()
    problem = await problem_of(KubeApi(in_cluster(account)))
    assert problem.startswith(f"cannot use a service account: {account}: ")
    assert "No such file" in problem


async def test_an_empty_service_account_token_is_reported(account: Path) -> None:
    (account / "token").write_text("\n")
    problem = await problem_of(KubeApi(in_cluster(account)))
    assert problem.startswith(f"cannot use a service account: {account / 'token'} is empty. ")


async def test_an_ipv6_address_is_written_in_brackets(
    account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    assert await KubeApi(in_cluster(account)).host() == "https://[fd00::1]:443"


async def test_a_connection_error_names_address_and_reason(
    account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port := str(bound.getsockname()[1]))
        connection = KubeApi(in_cluster(account))
        with pytest.raises(UnreachableError) as caught:
            await connection.get("/version", seconds=5)
        await connection.close()
    assert str(caught.value) == (
        f"the API server at https://127.0.0.1:{port} is out of reach: 127.0.0.1:{port}: "
        f"[Errno {errno.ECONNREFUSED}] Connect call failed ('127.0.0.1', {port})"
    )
