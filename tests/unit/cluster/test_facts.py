"""What is kept of Nodes and DeviceClasses, the way to a cluster, and how long to wait for it."""

from __future__ import annotations

import errno
import json
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import web

from certs.files import issue
from clusters import around_a_pod, gpu_node, node, policy
from fake_apiserver import FakeApiServer
from policies.kubernetes.nodes import Node
from policies.kubernetes.scheduling import Taint
from webhook.cluster.nodes import NodeObject, NodeStore
from webhook.cluster.state import ClusterState, DeviceClassObject, DeviceClassSpec
from webhook.kube.backoff import Backoff
from webhook.kube.client import KubeApi
from webhook.kube.collection import LabeledMetadata
from webhook.kube.credentials import in_cluster, kubeconfig
from webhook.kube.errors import ConfigurationError, UnreachableError

JSON = dict[str, Any]


def node_of(obj: JSON) -> Node | None:
    state = ClusterState(policy())
    state.put({"apiVersion": "v1", "kind": "Node", **obj})
    return next(iter(state.nodes.index), None)


def test_a_node_keeps_labels_taints_and_devices_of_pools() -> None:
    obj = gpu_node("a")
    obj["status"]["allocatable"] |= {
        "nvidia.com/mig-1g.10gb": "7k",
        "example.com/nic": "4",
        "hugepages-2Mi": "0",
    }
    assert node_of(obj) == Node(
        "a",
        {"kubernetes.io/hostname": "a", "nvidia.com/gpu.present": "true"},
        (Taint("nvidia.com/gpu", "NoSchedule", "present"),),
        {"nvidia.com/gpu": 8, "nvidia.com/mig-1g.10gb": 7000},
    )


def test_a_node_with_numeric_quantities_or_only_a_name_is_accepted() -> None:
    text = """
    apiVersion: v1
    kind: Node
    metadata: {name: a}
    spec: {taints: [{key: gpu, effect: NoSchedule}]}
    status: {allocatable: {nvidia.com/gpu: 8}}
    """
    assert node_of(yaml.safe_load(text)) == Node(
        "a", {}, (Taint("gpu", "NoSchedule", ""),), {"nvidia.com/gpu": 8}
    )
    assert node_of({"metadata": {"name": "a"}}) == Node("a", {}, (), None)


@pytest.mark.parametrize(
    ("obj", "problem"),
    [
        ({}, "missing required field `metadata`"),
        ({"metadata": {}}, "it has no name"),
        ({"metadata": {"name": 1}}, r"Expected `str`, got `int` - at `\$.metadata.name`"),
        ({"metadata": {"name": "a", "labels": {"a": 1}}}, "Expected `str`, got `int`"),
        ({"metadata": {"name": "a"}, "spec": {"taints": [{}]}}, "required field `key`"),
        (node("a", allocatable={"nvidia.com/gpu": "many"}), "'many' is not a quantity"),
    ],
)
def test_an_invalid_node_is_reported(obj: JSON, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        node_of(obj)


def device_class(name: str, created: str, resource: str | None) -> DeviceClassObject:
    metadata = LabeledMetadata(name=name, creation_timestamp=created)
    return DeviceClassObject(metadata, DeviceClassSpec(resource))


def test_the_newest_device_class_of_a_resource_wins_then_the_lower_name() -> None:
    store = ClusterState(policy()).device_classes
    early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    store.put(device_class("b", late, "example.com/gpu"))
    assert store.all == {"example.com/gpu": "b"}
    store.put(device_class("a", early, "example.com/gpu"))
    assert store.all == {"example.com/gpu": "b"}, "the newer one"
    store.put(device_class("c", late, "example.com/gpu"))
    assert store.all == {"example.com/gpu": "b"}, "the lower name of two as new"
    store.remove("b")
    assert store.all == {"example.com/gpu": "c"}
    store.put(device_class("c", late, None))
    store.put(device_class("d", late, "example.com/nic"))
    assert store.all == {"example.com/gpu": "a", "example.com/nic": "d"}


def test_delays_double_up_to_a_cap_and_are_shortened_by_up_to_half() -> None:
    whole = Backoff(0.25, 10.0, 10.0, spread=lambda: 0.0)
    assert [whole.after(0.0) for _ in range(8)] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    half = Backoff(0.25, 10.0, 10.0, spread=lambda: 1.0)
    assert [half.after(0.0) for _ in range(3)] == [0.125, 0.25, 0.5]
    for _ in range(2000):
        last = whole.after(0.0)
    assert last == 10.0


def test_delays_are_reset_after_a_long_attempt() -> None:
    backoff = Backoff(0.25, 10.0, 10.0, spread=lambda: 0.0)
    assert [backoff.after(lasted) for lasted in (0, 9.9, 0, 10.0, 0)] == [0.25, 0.5, 1, 0.25, 0.5]


def test_delays_differ_between_reflectors() -> None:
    assert len({Backoff(0.25, 10.0, 10.0).after(0.0) for _ in range(20)}) > 1


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


def test_common_label_strings_are_stored_once() -> None:
    store = NodeStore(policy())
    for name in ("a", "b"):
        line = json.dumps(node(name, {"example.com/rack-of-the-node": "rack-number-7"}))
        store.put(msgspec.json.decode(line, type=NodeObject))
    first, second = (store.index.get(name) for name in ("a", "b"))
    assert first is not None
    assert second is not None
    for one, other in zip(first.labels.items(), second.labels.items(), strict=True):
        assert one[0] is other[0]
    key = "example.com/rack-of-the-node"
    assert first.labels[key] is second.labels[key]
