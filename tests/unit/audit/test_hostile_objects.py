"""The memory of an audit, whatever tenants store in the cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import hostile
from hostile import HostileServer, peak_of
from webhook.audit.kinds import POD, WORKLOADS

MIB = 1024 * 1024
OBJECTS = 10
DEPLOYMENTS = WORKLOADS[0].path

AUDIT = """
import asyncio, sys
from datetime import date
from policies.shipped import shipped_policy
from webhook.audit.cluster_audit import audit
from webhook.kube.client import KubeApi
from webhook.kube.credentials import kubeconfig

async def main():
    connection = KubeApi(kubeconfig(Path(sys.argv[1])))
    await audit(connection, shipped_policy(), date(2026, 1, 1))
    await connection.close()
    peak()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("path", "make"),
    [
        (POD.path, hostile.pod_with_less_than_signs),
        (POD.path, hostile.pod_with_labels),
        (POD.path, hostile.pod_with_findings),
        (DEPLOYMENTS, hostile.deployment_with_variables),
        (DEPLOYMENTS, hostile.gpu_deployment_with_less_than_signs),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_an_audit_keeps_its_memory_with_large_objects(
    path: str, make: Callable[[], Callable[[int], bytes]], tmp_path: Path
) -> None:
    async with HostileServer({path: (OBJECTS, make())}).serving() as server:
        config = server.kubeconfig(tmp_path / "kubeconfig")
        peak = await peak_of(AUDIT, config, lambda: True)
    print(make.__name__, peak / MIB)
    assert peak < 150 * MIB
    assert server.lists[path]
