"""Wasted devices of a real cluster of 50 GPU nodes, whose Pods the real scheduler places.

No kubelet runs: the test writes the conditions that kubelets would report.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from controlplane.cluster import ControlPlane
from controlplane.objects import TOLERATION, node, pod, taint
from running import run_command

GPU = "nvidia.com/gpu"
NODES = [
    node(
        f"gpu-{number}",
        labels={"nvidia.com/gpu.present": "true"},
        taints=[taint(GPU, "present")],
        resources={GPU: "8"},
    )
    for number in range(50)
]
SLACK = 0.2
"""Hours that the test may take."""


def test_each_kind_of_waste_is_found_in_a_cluster_with_50_nodes(
    control_plane: ControlPlane, namespace: str
) -> None:
    api, path = control_plane.api, f"/api/v1/namespaces/{namespace}/pods"
    now = datetime.now(UTC)

    def condition(kind: str, hours: float, status: str = "True") -> dict[str, str]:
        at = (now - timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"type": kind, "status": status, "lastTransitionTime": at}

    def create(name: str, number: int, devices: int, cpu: str) -> str:
        """Create a Pod that can be placed on one of the nodes only."""
        made = pod(
            {GPU: devices} if devices else None,
            name,
            tolerations=[TOLERATION],
            nodeSelector={"kubernetes.io/hostname": f"gpu-{number}"},
        )
        made["spec"]["containers"][0].setdefault("resources", {})["requests"] = {"cpu": cpu}
        api.request("POST", path, made)
        return name

    def placed(name: str, *conditions: dict[str, str]) -> None:
        control_plane.bound_to(namespace, name)
        status: dict[str, Any] = {"status": {"phase": "Running", "conditions": conditions}}
        api.request("PATCH", f"{path}/{name}/status", status, "application/merge-patch+json")

    with control_plane.nodes(*NODES):
        ready = [create(f"train-{n}", n, 8, "12") for n in range(20)]
        ready += [create(f"hog-{n}", n, 1, "15") for n in range(20, 26)]
        ready += [create(f"web-{n}", n, 0, "16") for n in range(26, 29)]
        broken = [create(f"broken-{n}", n, 8, "12") for n in range(29, 33)]
        silent = create("silent", 33, 2, "3")
        create("waits", 0, 8, "12")
        for name in ready:
            placed(name, condition("PodScheduled", 2), condition("Ready", 2))
        for name in broken:
            placed(name, condition("PodScheduled", 2), condition("Ready", 1, "False"))
        control_plane.bound_to(namespace, silent)
        control_plane.unschedulable(namespace, "waits")
        done = run_command(
            "audit",
            "--kubeconfig",
            control_plane.kubeconfig,
            "--output",
            "json",
            "--fail-on",
            "never",
        )
    found = {
        row["kind"]: (row["devices"], row["deviceHours"])
        for row in done.report["waste"]["rows"]
        if row["namespace"] == namespace
    }
    expected = {
        "held": (20 * 8 + 6 + 4 * 8 + 2, 20 * 8 * 2 + 6 * 2 + 4 * 8 * 2),
        "pending": (8, 0),
        "notReady": (4 * 8 + 2, 4 * 8 * 1),
        "stranded": (6 * 7, 6 * 7 * 2),
        "trespassed": (3 * 8, 3 * 8 * 2),
    }
    print(found)
    assert found.keys() == expected.keys()
    for kind, (devices, hours) in expected.items():
        assert found[kind][0] == devices
        assert hours <= found[kind][1] <= hours + SLACK * devices
