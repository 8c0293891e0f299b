"""The memory of an audit, whatever tenants store in the cluster."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import hostile
from hostile import HostileServer, each, peak_of
from webhook.audit.kinds import POD, WORKLOADS

MIB = 1024 * 1024
OBJECTS = 4
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
async def test_an_audit_keeps_its_memory_with_large_objects(tmp_path: Path) -> None:
    pods = each(
        hostile.pod_with_less_than_signs(), hostile.pod_with_labels(), hostile.pod_with_findings()
    )
    deployments = each(
        hostile.deployment_with_variables(), hostile.gpu_deployment_with_less_than_signs()
    )
    objects = {POD.path: (3 * OBJECTS, pods), DEPLOYMENTS: (2 * OBJECTS, deployments)}
    async with HostileServer(objects).serving() as server:
        config = server.kubeconfig(tmp_path / "kubeconfig")
        peak = await peak_of(AUDIT, config, lambda: True)
    assert peak < 150 * MIB
    assert server.lists.keys() >= objects.keys()
