"""The memory of a leader, whatever tenants store in the cluster."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hostile import (
    HostileServer,
    claim_with_selectors,
    each,
    peak_of,
    pod_with_capabilities,
    pod_with_less_than_signs,
)
from webhook.cluster.device_inventory import CLAIMS, PODS

MIB = 1024 * 1024
OBJECTS = 5

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
async def test_a_leader_keeps_its_memory_with_large_objects(tmp_path: Path) -> None:
    objects = {
        PODS.path: (2 * OBJECTS, each(pod_with_less_than_signs(), pod_with_capabilities())),
        CLAIMS.path: (OBJECTS, claim_with_selectors()),
    }
    async with HostileServer(objects).serving() as server:
        config = server.kubeconfig(tmp_path / "kubeconfig")
        peak = await peak_of(LEADER, config, lambda: server.watched >= objects.keys())
    assert peak < 150 * MIB
    for path, (count, _) in objects.items():
        assert server.lists[path].count(1) == count  # the first list only: no watch was lost
