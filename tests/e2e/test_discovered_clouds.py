"""Discovered policies on the nodes of three platforms, with the real scheduler.

Each GPU Pod that the scheduler places without gpufence is placed with the discovered policy, and no
Pod that tolerates a taint of the platform is denied.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.cluster import ControlPlane
from controlplane.fence import running
from controlplane.objects import node
from controlplane.placing import place
from running import run_command

pytestmark = [pytest.mark.timeout(900)]

JSON = dict[str, Any]
CLOUDS = Path(__file__).parents[1] / "unit/cli/discover/clouds"


def nodes_of(cloud: str) -> list[JSON]:
    groups = yaml.safe_load((CLOUDS / f"{cloud}.yaml").read_text())
    return [
        node(
            f"node-{number}",
            labels=each["labels"],
            taints=[_taint(taint) for taint in each.get("taints", ())],
            resources={name: str(count) for name, count in each.get("devices", {}).items()},
        )
        for number, each in enumerate(groups)
    ]


def _taint(text: str) -> dict[str, str]:
    named, effect = text.rsplit(":", 1)
    key, _, value = named.partition("=")
    return {"key": key, "value": value, "effect": effect}


def pods_of(nodes: list[JSON]) -> list[JSON]:
    """Return a Pod for each device of each node, and one that tolerates each taint."""
    specs = []
    for each in nodes:
        tolerations = [{"key": t["key"], "operator": "Exists"} for t in each["spec"]["taints"]]
        for name, count in each["status"]["allocatable"].items():
            if "/" in name and count != "0" and "efa" not in name:
                container = {"name": "main", "image": "app", "resources": {"limits": {name: "1"}}}
                specs.append({"containers": [container], "tolerations": tolerations})
    return [spec | {"terminationGracePeriodSeconds": 0} for spec in specs]


@pytest.mark.parametrize(
    "cloud",
    [
        "gke-auto-provisioning-spot-tpu",
        "aks-feature-discovery-on-one-pool-mig",
        "openshift-storage-and-infra",
    ],
)
def test_gpu_pods_run_with_the_discovered_policy_as_without_gpufence(
    control_plane: ControlPlane, tmp_path: Path, cloud: str
) -> None:
    nodes = nodes_of(cloud)
    with control_plane.nodes(*nodes):
        done = run_command("policy", "discover", "--kubeconfig", control_plane.kubeconfig)
        assert done.status == 0, done.err
        namespace = control_plane.create_namespace("ml-")
        pods = [(namespace, spec) for spec in pods_of(nodes)]
        without = place(control_plane, pods)
        with (
            running(control_plane, tmp_path, yaml.safe_load(done.out)) as fence,
            fence.registered(),
        ):
            outcome = place(control_plane, pods)
        print(f"\n{cloud}: {len(pods)} GPU Pods: {outcome}; without the fence: {without}")
        assert not outcome.denials
        assert outcome.bound.keys() == without.bound.keys()
        assert without.bound
