"""Nodes that do not exist yet: NodePools of Karpenter and MachineDeployments in a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.cluster import ControlPlane
from controlplane.objects import definition, node
from policies.shipped import default_policy_text
from running import Outcome, run_here

pytestmark = [pytest.mark.timeout(600)]

JSON = dict[str, Any]

GPU = "nvidia.com/gpu"
FENCE = {"key": GPU, "value": "present", "effect": "NoSchedule"}
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io"


DEFINITIONS = [
    definition("karpenter.sh", "v1", "NodePool", scope="Cluster"),
    definition("karpenter.sh", "v1", "NodeClaim", scope="Cluster"),
    definition("cluster.x-k8s.io", "v1beta1", "MachineDeployment"),
]


def node_pool(name: str, labels: dict[str, str]) -> JSON:
    template = {"metadata": {"labels": labels}, "spec": {"taints": [FENCE]}}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": template},
    }


MACHINES: JSON = {
    "apiVersion": "cluster.x-k8s.io/v1beta1",
    "kind": "MachineDeployment",
    "metadata": {
        "name": "a100",
        "namespace": "default",
        "annotations": {
            f"{CAPACITY}/gpu-type": GPU,
            f"{CAPACITY}/gpu-count": "16",
            f"{CAPACITY}/labels": "nvidia.com/gpu.product=A100",
        },
    },
}


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A cluster with a GPU node, a NodePool and a MachineDeployment."""
    labels = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "L4"}
    gpu = node("gpu", labels=labels, taints=[FENCE], resources={GPU: "8"})
    templates = [node_pool("gpu", {}), MACHINES]
    with control_plane.defined(*DEFINITIONS):
        control_plane.kubectl.apply(*templates)
        with control_plane.nodes(gpu):
            yield control_plane


def run(cluster: ControlPlane, *arguments: str) -> Outcome:
    return run_here(*arguments, "--kubeconfig", cluster.kubeconfig)


def test_validate_warns_about_node_templates_without_the_pool_label(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(default_policy_text())
    done = run(cluster, "policy", "validate", "--cluster", str(policy))
    assert done.status == 0
    assert "NodePool gpu is for GPU nodes, but does not promise the labels" in done.err
    assert "MachineDeployment default/a100 is for GPU nodes" in done.err


def test_discover_selects_labels_of_the_node_templates(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    done = run(cluster, "policy", "discover")
    assert done.status == 0, done.err
    print(f"\n{done.out}")
    policy = yaml.safe_load(done.out)
    selectors = [pool["nodeSelector"] for pool in policy["spec"]["pools"]]
    assert {"karpenter.sh/nodepool": "gpu"} in selectors
    assert {"nvidia.com/gpu.product": "A100"} in selectors
    (tmp_path / "policy.yaml").write_text(done.out)
    options = ("--cluster", "--fence-policy", "gpufence", str(tmp_path / "policy.yaml"))
    validated = run(cluster, "policy", "validate", *options)
    assert (validated.status, validated.err) == (0, "")
