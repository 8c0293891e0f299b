"""What containers get from NVIDIA's container runtime on a real node, before and after gpufence.

The first fixture runs the Pods of ``LEAKS`` before the release is installed, so these tests come
before those of the release.
"""

from __future__ import annotations

import pytest

from controlplane.kubectl import KubectlError
from controlplane.poll import until
from node.image import TOOLS
from node.installed import Installed
from node.machine import GPUS, Node
from specs import JSON

ALL = [f"/dev/nvidia{number}" for number in range(GPUS)]
NULL = {"name": "null", "hostPath": {"path": "/dev/null"}}
PREFIX = "/var/run/nvidia-container-devices"


def pod(
    name: str,
    *env: tuple[str, str],
    mount: str = "",
    annotations: JSON | None = None,
    gpus: int = 0,
) -> JSON:
    """Return a Pod that prints its device files."""
    main: JSON = {
        "name": "main",
        "image": TOOLS,
        "command": ["/bin/sh", "-c", "echo /dev/nvidia*"],
        "env": [{"name": key, "value": value} for key, value in env],
    }
    spec: JSON = {"restartPolicy": "Never", "containers": [main]}
    if mount:
        main["volumeMounts"] = [{"name": "null", "mountPath": mount}]
        spec["volumes"] = [NULL]
    if gpus:
        main["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    metadata = {"name": name, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


LEAKS = {
    each["metadata"]["name"]: each
    for each in (
        pod("variable", ("NVIDIA_VISIBLE_DEVICES", "all")),
        pod("version-of-none", ("CUDA_VERSION", "none")),
        pod(
            "empty-requirements",
            ("E", ""),
            ("CUDA_VERSION", "12.4"),
            ("NVIDIA_REQUIRE_CUDA", "$(E)"),
        ),
        pod("mount-without-a-slash", mount=f"{PREFIX}cdi/nvidia.com/gpu/all"),
        pod("annotation", annotations={"cdi.k8s.io/gpus": "nvidia.com/gpu=all"}),
    )
}
"""Pods without a request that get all devices."""
OVERRIDING = pod("one-gpu-and-all", ("NVIDIA_VISIBLE_DEVICES", "all"), gpus=1)


def devices(node: Node, obj: JSON) -> list[str]:
    """Run a Pod to its end, and return the device files that its container has."""
    kubectl, name = node.cluster.kubectl, obj["metadata"]["name"]
    kubectl.create(obj)
    phase = ("get", "pod", name, "-o", "jsonpath={.status.phase}")
    until(lambda: kubectl(*phase).stdout == "Succeeded", f"Pod {name} to end", 120, every=1)
    found = kubectl("logs", name).stdout.split()
    kubectl("delete", "pod", name, "--grace-period=1")
    return [path for path in found if "*" not in path]


@pytest.fixture(scope="session")
def unfenced(node: Node) -> dict[str, list[str]]:
    """The devices of each Pod in a cluster without gpufence."""
    pods = [*LEAKS.values(), OVERRIDING, pod("no-device"), pod("one-gpu", gpus=1)]
    return {each["metadata"]["name"]: devices(node, each) for each in pods}


def test_a_container_gets_the_devices_that_it_requests(unfenced: dict[str, list[str]]) -> None:
    assert unfenced["no-device"] == []
    assert len(unfenced["one-gpu"]) == 1


@pytest.mark.parametrize("leak", LEAKS)
def test_a_leak_opens_all_devices_and_is_denied(
    unfenced: dict[str, list[str]], installed: Installed, leak: str
) -> None:
    assert unfenced[leak] == ALL
    with pytest.raises(KubectlError, match="device-leak"):
        installed.node.cluster.kubectl.create(LEAKS[leak])


def test_the_variable_of_a_container_overrides_its_devices_until_it_is_removed(
    unfenced: dict[str, list[str]], installed: Installed
) -> None:
    """The kubelet appends the container's variables to those of the device plugin."""
    assert unfenced["one-gpu-and-all"] == ALL
    assert len(devices(installed.node, OVERRIDING)) == 1
