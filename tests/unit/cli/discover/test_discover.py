"""``gpufence policy discover``: the policies for nodes as platforms set them up."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from running import Run, assert_golden

HERE = Path(__file__).with_name("platforms")
PLATFORMS = ("aks", "bare-metal", "eks", "gke", "openshift")


@pytest.mark.parametrize("platform", PLATFORMS)
def test_discover_generates_a_valid_policy_for_the_nodes_of_a_platform(
    gpufence: Run, platform: str
) -> None:
    done = gpufence("policy", "discover", "--nodes", str(HERE / f"{platform}.nodes.yaml"))
    assert done.status == 0
    assert_golden(HERE / f"{platform}.policy.yaml", done.out)
    # Comments are wrapped.
    comments = " ".join(line.removeprefix("#").strip() for line in done.out.splitlines())
    for warning in done.err.splitlines():
        assert warning.removeprefix("Warning: ") in comments
    validated = gpufence("policy", "validate", "-", stdin=done.out)
    assert (validated.status, validated.err) == (0, "")


NODE = """\
apiVersion: v1
kind: Node
metadata: {name: gpu-1, labels: {nvidia.com/gpu.present: "true"}}
status: {allocatable: {cpu: "8"}}
"""


def test_nodes_without_devices_get_no_policy(gpufence: Run) -> None:
    done = gpufence("policy", "discover", "--nodes", "-", stdin=NODE)
    assert (done.status, done.out) == (2, "")
    warning, error = done.err.splitlines()
    assert warning.startswith(
        "Warning: 1 node with nvidia labels and without nvidia.com/gpu: gpu-1."
    )
    assert error.startswith("Error: no node offers devices of a known vendor.")


def test_a_device_class_of_one_pool_gets_a_quota(gpufence: Run) -> None:
    offering = NODE.replace('cpu: "8"', 'nvidia.com/gpu: "8"')
    device_class = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: %s}\n"
    text = f"{offering}---\n{device_class % 'gpu.nvidia.com'}"
    done = gpufence("policy", "discover", "--nodes", "-", stdin=text)
    assert done.status == 0
    assert " gpu.nvidia.com.deviceclass.resource.k8s.io/devices " in done.out


def test_a_machine_deployment_without_the_pool_label_is_reported(gpufence: Run) -> None:
    template = """\
apiVersion: cluster.x-k8s.io/v1beta1
kind: MachineDeployment
metadata:
  name: gpu
  namespace: infra
  annotations:
    capacity.cluster-autoscaler.kubernetes.io/gpu-type: nvidia.com/gpu
    capacity.cluster-autoscaler.kubernetes.io/gpu-count: "8"
"""
    offering = NODE.replace('cpu: "8"', 'nvidia.com/gpu: "8"')
    done = gpufence("policy", "discover", "--nodes", "-", stdin=f"{offering}---\n{template}")
    assert done.status == 0
    assert "MachineDeployment infra/gpu promises no label that identifies nvidia nodes" in done.err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n", "<stdin> contains no nodes."),
        ("apiVersion: v1\nkind: Node\nspec: {taints: 1}\n", "is not a valid Node: "),
    ],
)
def test_a_file_without_nodes_is_rejected(gpufence: Run, text: str, problem: str) -> None:
    done = gpufence("policy", "discover", "--nodes", "-", stdin=text)
    assert (done.status, done.out) == (2, "")
    assert problem in done.err


TEMPLATE = """\
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: gpu}
spec:
  template:
    spec:
      requirements:
        - {key: nvidia.com/gpu.present, operator: In, values: ["true"]}
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
"""


def test_a_template_without_named_devices_offers_those_of_the_vendor(gpufence: Run) -> None:
    partitioned = NODE.replace('cpu: "8"', 'nvidia.com/mig-1g.10gb: "7"')
    done = gpufence("policy", "discover", "--nodes", "-", stdin=partitioned + TEMPLATE)
    [pool] = yaml.safe_load(done.out)["spec"]["pools"]
    assert pool["resources"] == ["nvidia.com/gpu", "nvidia.com/mig-*"]
