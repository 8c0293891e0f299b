"""The main job on the real control plane: Pods as authors write them, and their outcome."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster import ControlPlane
from controlplane.gpufence import Server
from controlplane.objects import GPU_NODE, RESTRICTED, TOLERATION, node, pod
from controlplane.poll import until
from controlplane.webhooks import register, unregister
from release.recorder import Recorder

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


def test_a_sidecar_added_by_a_later_webhook_is_hardened_by_reinvocation(
    control_plane: ControlPlane, restricted: str, tmp_path: Path
) -> None:
    with sidecar_injector(control_plane, tmp_path):
        created = create(control_plane, restricted, pod({GPU: 1}, "train"))
    by_name = {container["name"]: container for container in created["spec"]["containers"]}
    assert set(by_name) == {"main", "proxy"}
    for container in by_name.values():
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in by_name["proxy"]["env"]
    tolerations = [t for t in created["spec"]["tolerations"] if t.get("key") == GPU]
    assert tolerations == [TOLERATION]


class Injector(Recorder):
    """Adds a container to each Pod that has it not yet."""

    def response(self, request: dict[str, Any]) -> dict[str, Any]:
        names = [each["name"] for each in request["object"]["spec"]["containers"]]
        if "proxy" in names:
            return {}
        proxy = {"name": "proxy", "image": "envoyproxy/envoy:v1.36"}
        patch = [{"op": "add", "path": "/spec/containers/-", "value": proxy}]
        encoded = base64.b64encode(json.dumps(patch).encode()).decode()
        return {"patchType": "JSONPatch", "patch": encoded}


@contextmanager
def sidecar_injector(cluster: ControlPlane, directory: Path) -> Iterator[None]:
    """Run a mutating webhook that adds a container, registered to be called after gpufence."""
    configurations = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    with Injector(directory / "certs") as injector:
        bundle = base64.b64encode(injector.authority).decode()
        rule = {
            "operations": ["CREATE"],
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["pods"],
        }
        webhook = {
            "name": "sidecar.example.com",
            "clientConfig": {"url": f"{injector.url}/mutate", "caBundle": bundle},
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail",
        }
        # Webhooks are called in the order of their configurations' names.
        configuration = {"metadata": {"name": "zz-sidecar"}, "webhooks": [webhook]}
        try:
            cluster.api.request("POST", configurations, configuration)
            until(lambda: _injects(cluster), "the injector to be called")
            yield
        finally:
            cluster.api.request("DELETE", f"{configurations}/zz-sidecar")
            until(lambda: not _injects(cluster), "the injector to be forgotten")


def _injects(cluster: ControlPlane) -> bool:
    created = cluster.api.request(
        "POST", "/api/v1/namespaces/default/pods?dryRun=All", pod(name="probe")
    )
    return len(created["spec"]["containers"]) == 2
