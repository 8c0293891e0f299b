"""The main job on the real control plane: Pods as authors write them, and their outcome."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from controlplane.cluster import ControlPlane
from controlplane.gpufence import Server
from controlplane.objects import GPU_NODE, RESTRICTED, node, pod
from controlplane.webhooks import register, unregister

GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module", autouse=True)
def _registered_with_the_sample(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """A replica, registered by the sample manifest for installations without the chart."""
    with Server(tmp_path_factory.mktemp("gpufence")) as server:
        register(control_plane, server.url, server.authority)
        yield
        unregister(control_plane)


def create(cluster: ControlPlane, namespace: str, obj: dict[str, Any]) -> dict[str, Any]:
    return cluster.api.request("POST", f"/api/v1/namespaces/{namespace}/pods", obj)


def patch(cluster: ControlPlane, path: str, operation: dict[str, Any]) -> dict[str, Any]:
    """Change an object whose status others change at the same time."""
    return cluster.api.request("PATCH", path, [operation], "application/json-patch+json")


def debug(cluster: ControlPlane, namespace: str, container: dict[str, Any]) -> dict[str, Any]:
    """Add an ephemeral container to the Pod ``train``, as kubectl debug does."""
    path = f"/api/v1/namespaces/{namespace}/pods/train/ephemeralcontainers"
    added = {"op": "add", "path": "/spec/ephemeralContainers", "value": [container]}
    return patch(cluster, path, added)


@pytest.fixture
def restricted(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace that enforces Pod Security restricted."""
    name = control_plane.create_namespace("restricted-", RESTRICTED)
    yield name
    control_plane.delete_pods(name)


def test_a_gpu_pod_in_a_restricted_namespace_is_bound_to_the_gpu_node(
    control_plane: ControlPlane, restricted: str
) -> None:
    with control_plane.nodes(GPU_NODE, node("plain")):
        create(control_plane, restricted, pod({GPU: 1}, "train"))
        assert control_plane.bound_to(restricted, "train") == "gpu"


def test_an_ephemeral_container_without_a_security_context_is_hardened(
    control_plane: ControlPlane, restricted: str
) -> None:
    create(control_plane, restricted, pod({GPU: 1}, "train"))
    changed = debug(control_plane, restricted, {"name": "look", "image": "busybox:1.37"})
    [debugger] = changed["spec"]["ephemeralContainers"]
    assert debugger["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    # Made from a CUDA image it would see all GPUs of the node, and its Pod's are not mounted there.
    assert debugger["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
