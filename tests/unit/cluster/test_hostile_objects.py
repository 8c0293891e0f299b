"""The memory of a leader, whatever tenants store in the cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hostile import (
    HostileServer,
    claim_with_selectors,
    peak_of,
    pod_with_capabilities,
    pod_with_less_than_signs,
)
from webhook.cluster.device_inventory import CLAIMS, PODS

MIB = 1024 * 1024
OBJECTS = 15

LEADER = """
import asyncio, sys
from policies.shipped import shipped_policy
from webhook.cluster.device_inventory import DeviceInventory
from webhook.kube.client import KubeApi
from webhook.kube.credentials import kubeconfig
from webhook.kube.reflector import Watches

async def main():
    inventory = DeviceInventory(Watches(KubeApi(kubeconfig(Path(sys.argv[1])))), shipped_policy())
    await inventory.follow(True)
    await asyncio.to_thread(sys.stdin.read)
    peak()
    await inventory.stop()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("path", "make"),
    [
        (PODS.path, pod_with_less_than_signs),
        (PODS.path, pod_with_capabilities),
        (CLAIMS.path, claim_with_selectors),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_leader_keeps_its_memory_with_large_objects(
    path: str, make: Callable[[], Callable[[int], bytes]], tmp_path: Path
) -> None:
    async with HostileServer({path: (OBJECTS, make())}).serving() as server:
        config = server.kubeconfig(tmp_path / "kubeconfig")
        peak = await peak_of(LEADER, config, lambda: path in server.watched)
    assert peak < 150 * MIB
    assert server.lists[path].count(1) == OBJECTS  # the first list only: no watch was lost
