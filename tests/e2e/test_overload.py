"""What a real API server makes of a replica that has too much to do."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import resource
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.objects import node, taint
from controlplane.poll import until
from fault_proxy import ProxyThread, kubeconfig
from release.load import GPU_POD
from release.release import Release, release
from release.replica import Replica
from reviewing import encode, plain_pod, review
from soak.floods import IDLE, ONE_BYTE, Flood, flooding

OVERLOADED = (
    "gpufence_admission_requests_total"
    '{kind="other",operation="unknown",path="/mutate",result="overloaded"}'
)


GPU_NODE = node(
    "gpu-1",
    labels={"nvidia.com/gpu.present": "true"},
    taints=[taint("nvidia.com/gpu")],
    resources={"nvidia.com/gpu": "8"},
)


@pytest.fixture(scope="module")
def proxy(control_plane: ControlPlane) -> Iterator[ProxyThread]:
    with ProxyThread(control_plane.url, control_plane.client_context()) as thread:
        yield thread


@pytest.fixture(scope="module")
def narrow(
    control_plane: ControlPlane, proxy: ProxyThread, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Release]:
    """A release with one replica, which answers one request at a time."""
    directory = tmp_path_factory.mktemp("release")
    config = kubeconfig(directory / "proxy.kubeconfig", proxy.proxy.url)
    flags = ("--max-in-flight", "1", "--node-facts", "--kubeconfig", str(config))
    with (
        control_plane.nodes(GPU_NODE),
        release(control_plane, directory) as released,
        released.replicas(1, *flags),
    ):
        yield released


@pytest.fixture
def descriptors() -> Iterator[None]:
    """As many open files as the machine allows: each connection of a flood is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("descriptors")
def test_every_gpu_pod_is_created_during_two_floods(
    control_plane: ControlPlane, tmp_path: Path, namespace: str
) -> None:
    with release(control_plane, tmp_path) as released, released.replicas(1) as [replica]:
        context = ssl.create_default_context(cadata=released.secret()["ca.crt"].decode())
        slow = Flood(replica.port, ["127.0.0.2"], 230, ONE_BYTE, context)
        idle = Flood(replica.port, ["127.0.0.3", "127.0.0.4"], 400, IDLE, context)
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        seconds = []
        with flooding(slow, idle):
            until(lambda: slow.opened >= 230 and idle.opened >= 500, "the connections", 60)
            for _ in range(20):
                start = time.monotonic()
                created = released.cluster.api.request("POST", path, GPU_POD)
                seconds.append(time.monotonic() - start)
                assert "affinity" in created["spec"]
        opened = slow.opened + idle.opened
        print(
            f"\n{len(seconds)} GPU Pods created, longest {max(seconds):.2f} s; {opened} connections"
        )


@contextmanager
def busy(proxy: ProxyThread, replica: Replica, authority: bytes) -> Iterator[threading.Event]:
    """Have the replica wait in the block for claims that its API server does not send.

    The event that is yielded ends it early.
    """
    over = threading.Event()

    def ask() -> None:
        context = ssl.create_default_context(cadata=authority.decode())
        for number in itertools.count():
            if over.is_set():
                return
            plain = plain_pod()
            plain["spec"]["resourceClaims"] = [
                {"name": "gpu", "resourceClaimName": f"slow-{number}"}
            ]
            connection = http.client.HTTPSConnection("localhost", replica.port, context=context)
            with contextlib.closing(connection), contextlib.suppress(OSError):
                headers = {"Content-Type": "application/json"}
                connection.request("POST", "/mutate?timeout=3s", encode(review(plain)), headers)
                connection.getresponse().read()

    thread = threading.Thread(target=ask)
    proxy.begin("silence")
    try:
        thread.start()
        in_flight = "gpufence_admission_requests_in_flight"
        until(lambda: replica.metric(in_flight) == 1, "the replica to be busy")
        yield over
    finally:
        over.set()
        proxy.end()
        thread.join()


def test_a_pod_rejected_for_overload_is_created_by_a_retry(
    narrow: Release, proxy: ProxyThread, namespace: str
) -> None:
    [replica] = narrow.service.replicas
    before = replica.metric(OVERLOADED)
    with busy(proxy, replica, narrow.secret()["ca.crt"]) as over:

        def release_when_refused() -> None:
            until(lambda: replica.metric(OVERLOADED) > before, "a request to be sent away")
            over.set()

        thread = threading.Thread(target=release_when_refused)
        thread.start()
        start = time.monotonic()
        path = f"/api/v1/namespaces/{namespace}/pods"
        created = narrow.cluster.api.request("POST", path, GPU_POD)
        took = time.monotonic() - start
        thread.join()
    assert any(t.get("key") == "nvidia.com/gpu" for t in created["spec"]["tolerations"])
    # It retries a second after each rejection; a slow machine takes more than one.
    assert 1 <= replica.metric(OVERLOADED) - before <= took / 0.9


def test_a_pod_is_rejected_if_the_overload_outlasts_the_timeout(
    narrow: Release, proxy: ProxyThread, namespace: str
) -> None:
    [replica] = narrow.service.replicas
    path = f"/api/v1/namespaces/{namespace}/pods"
    with (
        busy(proxy, replica, narrow.secret()["ca.crt"]),
        pytest.raises(ApiError, match=r'failed calling webhook "pods\.gpufence\.dev"') as refused,
    ):
        narrow.cluster.api.request("POST", path, GPU_POD)
    print(f"\n{refused.value}")
    narrow.cluster.api.request("POST", path, GPU_POD)
