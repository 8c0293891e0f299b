"""What a real API server makes of a replica that has too much to do."""

from __future__ import annotations

import resource
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from controlplane.cluster import ControlPlane
from controlplane.poll import until
from floods import IDLE, ONE_BYTE, Flood, flooding
from release.load import GPU_POD
from release.release import release
from webhook.serve.http.listener import REVIEWS


@pytest.fixture
def descriptors() -> Iterator[None]:
    """As many open files as the machine allows: each connection of a flood is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("descriptors")
@pytest.mark.slow("opens 800 connections by handshakes")
def test_every_gpu_pod_is_created_during_two_floods(
    control_plane: ControlPlane, tmp_path: Path, namespace: str
) -> None:
    with release(control_plane, tmp_path) as released, released.replicas(1) as running:
        [replica] = running.replicas
        context = ssl.create_default_context(cadata=released.secret()["ca.crt"].decode())
        slow = Flood(replica.port, ["127.0.0.2"], 230, ONE_BYTE, context)
        idle = Flood(replica.port, ["127.0.0.3", "127.0.0.4"], 400, IDLE, context)
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"

        def create(_number: int) -> float:
            start = time.monotonic()
            created = released.cluster.api.request("POST", path, GPU_POD)
            assert "affinity" in created["spec"]
            return time.monotonic() - start

        with flooding(slow, idle):
            until(lambda: slow.opened + idle.opened > REVIEWS.connections, "more than it accepts")
            # The API server opens a connection for each of those that it sends at the same time.
            with ThreadPoolExecutor(4) as clients:
                seconds = list(clients.map(create, range(20)))
        opened = slow.opened + idle.opened
        print(
            f"\n{len(seconds)} GPU Pods created, longest {max(seconds):.2f} s; {opened} connections"
        )
