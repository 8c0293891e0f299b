"""What a real API server makes of a replica that has too much to do."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.poll import until
from release.load import GPU_POD
from release.release import Release, release
from release.replica import Replica

OVERLOADED = (
    "gpufence_admission_requests_total"
    '{kind="other",operation="unknown",path="/mutate",result="overloaded"}'
)


@pytest.fixture(scope="module")
def narrow(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Release]:
    """A release with one replica, which answers one request at a time."""
    with (
        release(control_plane, tmp_path_factory.mktemp("release")) as made,
        made.replicas(1, "--max-in-flight", "1"),
    ):
        yield made


@contextmanager
def busy(replica: Replica, authority: bytes) -> Iterator[socket.socket]:
    """Have the replica wait in the block for a request's body."""
    context = ssl.create_default_context(cadata=authority.decode())
    head = "POST /mutate?timeout=30s HTTP/1.1\r\nHost: localhost\r\n"
    head += "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    with (
        socket.create_connection(("127.0.0.1", replica.port), timeout=10) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as held,
    ):
        held.sendall(head.encode())
        in_flight = "gpufence_admission_requests_in_flight"
        until(lambda: replica.metric(in_flight) == 1, "the replica to be busy")
        yield held


def test_a_pod_waits_until_there_is_room_and_is_then_created(
    narrow: Release, namespace: str
) -> None:
    [replica] = narrow.service.replicas
    before = replica.metric(OVERLOADED)
    with busy(replica, narrow.secret()["ca.crt"]) as held:

        def release_when_refused() -> None:
            until(lambda: replica.metric(OVERLOADED) > before, "a request to be sent away")
            held.shutdown(socket.SHUT_RDWR)

        thread = threading.Thread(target=release_when_refused)
        thread.start()
        began = time.monotonic()
        path = f"/api/v1/namespaces/{namespace}/pods"
        made = narrow.cluster.api.request("POST", path, GPU_POD)
        took = time.monotonic() - began
        thread.join()
    assert any(t.get("key") == "nvidia.com/gpu" for t in made["spec"]["tolerations"])
    # It retries a second after each rejection; a slow machine takes more than one.
    assert 1 <= replica.metric(OVERLOADED) - before <= took / 0.9


def test_a_pod_for_which_there_is_no_room_in_time_is_refused_and_told_why(
    narrow: Release, namespace: str
) -> None:
    [replica] = narrow.service.replicas
    path = f"/api/v1/namespaces/{namespace}/pods"
    with (
        busy(replica, narrow.secret()["ca.crt"]),
        pytest.raises(ApiError, match=r'failed calling webhook "pods\.gpufence\.dev"') as refused,
    ):
        narrow.cluster.api.request("POST", path, GPU_POD)
    print(f"\n{refused.value}")
    narrow.cluster.api.request("POST", path, GPU_POD)
