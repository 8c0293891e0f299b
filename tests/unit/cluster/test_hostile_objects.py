"""The memory of an audit, whatever tenants store in the cluster."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import hostile
from hostile import HostileServer, each, peak_of
from webhook.tools.audit.cluster_audit import PODS
from webhook.tools.audit.kinds import WORKLOADS

MOST_BYTES = 150 * 1024 * 1024
DEPLOYMENTS = WORKLOADS[0].path

PROGRAM = """
import asyncio, sys
from datetime import date
from policies.shipped import shipped_policy
from webhook.tools.audit.cluster_audit import audit
from webhook.kube.client import KubeApi
from webhook.kube.kubeconfig import kubeconfig

async def main():
    api = KubeApi(kubeconfig(Path(sys.argv[1])))
    await audit(api, shipped_policy(), date(2026, 1, 1))
    await api.close()
    peak()

asyncio.run(main())
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


async def test_an_audit_keeps_its_memory_with_large_objects(tmp_path: Path) -> None:
    pods = each(
        hostile.pod_with_less_than_signs(), hostile.pod_with_labels(), hostile.pod_with_findings()
    )
    deployments = each(
        hostile.deployment_with_variables(), hostile.gpu_deployment_with_less_than_signs()
    )
    objects = {PODS.path: (12, pods), DEPLOYMENTS: (8, deployments)}
    async with HostileServer(objects).serving() as server:
        config = server.kubeconfig(tmp_path / "kubeconfig")
        peak = await peak_of(PROGRAM, config)
    assert peak < MOST_BYTES
    assert server.lists.keys() >= objects.keys()
