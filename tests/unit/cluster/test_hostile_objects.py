"""The memory of an audit, whatever tenants store in the cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from audit.simulated import PATHS, Cluster
from specs import JSON

MOST_BYTES = 150 * 1024 * 1024
TEXT = "é" * 1_400_000
"""What etcd accepts at most, 1.5 MB. Escaped, as here, it is 8.4 MB of JSON."""

PROGRAM = """
import asyncio, sys
from datetime import date
from pathlib import Path
from policies.shipped import shipped_policy
from webhook.tools.audit.cluster_audit import audit
from webhook.cluster.objects import LiveObjects, Reader
from webhook.kube.client import KubeApi
from webhook.kube.kubeconfig import kubeconfig

async def main():
    api = KubeApi(kubeconfig(Path(sys.argv[1])))
    await audit(Reader(LiveObjects(api)), shipped_policy(), date(2026, 1, 1))
    await api.close()

asyncio.run(main())
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""


def pod(number: int, *containers: JSON, **metadata: Any) -> JSON:
    named = {"name": f"pod-{number}", "namespace": "team", **metadata}
    return {"metadata": named, "spec": {"containers": [*containers]}, "status": {}}


def deployment(number: int, container: JSON) -> JSON:
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": f"deployment-{number}", "namespace": "team"}, "spec": spec}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_audit_keeps_its_memory_with_large_objects(tmp_path: Path) -> None:
    plain: JSON = {"name": "c", "image": "i"}
    large = {**plain, "env": [{"name": "A", "value": TEXT}]}
    labels = {f"label-{number}": f"value-{number}" for number in range(70_000)}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r"}
    findings = [{**plain, "securityContext": {"privileged": True}}] * 490
    variables = {**plain, "env": [{"name": "a"}] * 110_000}
    gpu = {**large, "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    cluster = Cluster()
    for number in range(2):
        cluster.add("Pod", pod(3 * number, large))
        references = [{**owner, "controller": True}]
        cluster.add("Pod", pod(3 * number + 1, plain, labels=labels, ownerReferences=references))
        cluster.add("Pod", pod(3 * number + 2, *findings))
        cluster.add("Deployment", deployment(2 * number, variables))
        cluster.add("Deployment", deployment(2 * number + 1, gpu))
    with cluster.api.in_thread():
        config = cluster.api.kubeconfig(tmp_path / "kubeconfig")
        command = [sys.executable, "-c", PROGRAM, str(config)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert int(done.stdout) * 1024 < MOST_BYTES
    for kind in ("Pod", "Deployment"):
        assert cluster.api.lists(PATHS[kind])
