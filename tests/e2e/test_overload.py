"""What a real API server makes of a replica that has too much to do."""

from __future__ import annotations

import resource
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.contestants import resident_mebibytes
from controlplane.cluster import ControlPlane
from controlplane.poll import until
from floods import CLIENT_HELLO, IDLE, ONE_BYTE, Flood, flooding
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


MORE = 30
"""Descriptors, and MiB, that other work of a replica may need."""


def descriptors_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.usefixtures("descriptors")
@pytest.mark.slow("opens 800 connections by handshakes")
def test_every_gpu_pod_is_created_during_floods_that_leave_nothing(
    control_plane: ControlPlane, tmp_path: Path, namespace: str
) -> None:
    with release(control_plane, tmp_path) as released, released.replicas(1) as running:
        [replica] = running.replicas
        context = ssl.create_default_context(cadata=released.secret()["ca.crt"].decode())
        slow = Flood(replica.port, ["127.0.0.2"], 230, ONE_BYTE, context)
        idle = Flood(replica.port, ["127.0.0.3", "127.0.0.4"], 400, IDLE, context)
        unfinished = Flood(replica.port, ["127.0.0.5"], 100, CLIENT_HELLO, None)
        pid = replica.process.pid or 0
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"

        def create(_number: int) -> float:
            start = time.monotonic()
            created = released.cluster.api.request("POST", path, GPU_POD)
            assert "affinity" in created["spec"]
            return time.monotonic() - start

        before, memory = descriptors_of(pid), resident_mebibytes(pid)
        with flooding(slow, idle, unfinished):
            until(lambda: slow.opened + idle.opened > REVIEWS.connections, "more than it accepts")
            # The API server opens a connection for each of those that it sends at the same time.
            with ThreadPoolExecutor(4) as clients:
                seconds = list(clients.map(create, range(20)))
            most = resident_mebibytes(pid)
        until(lambda: descriptors_of(pid) <= before + MORE, "the connections to be closed")
        until(lambda: resident_mebibytes(pid) < memory + MORE, "the memory to be returned")
        opened = slow.opened + idle.opened + unfinished.opened
        print(f"\nlongest of {len(seconds)} creations: {max(seconds):.2f} s; {opened} connections")
        print(f"{memory:.0f} MiB, then {most:.0f}, then {resident_mebibytes(pid):.0f}")
