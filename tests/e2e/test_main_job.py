"""The main job on the real control plane: Pods as authors write them, and their outcome."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from certs.files import issue
from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.gpufence import COMMAND, Server
from controlplane.kubectl import KubectlError
from controlplane.objects import RESTRICTED, node, taint
from controlplane.poll import until
from controlplane.webhooks import register, unregister

pytestmark = [pytest.mark.usefixtures("fenced")]

GPU = "nvidia.com/gpu"
FENCE = taint(GPU, "present")
GPU_NODE = node(
    "gpu", labels={"nvidia.com/gpu.present": "true"}, taints=[FENCE], resources={GPU: "8"}
)
PLAIN_NODE = node("plain")
TOLERATION = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}


def cuda_pod(**spec: Any) -> dict[str, Any]:
    """A GPU Pod from a CUDA image, that says nothing about tolerations, affinity or security."""
    container = {
        "name": "train",
        "image": "nvcr.io/nvidia/cuda:12.9.1-base-ubuntu24.04",
        "resources": {"limits": {GPU: 1}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train"},
        "spec": {"containers": [container], **spec},
    }


def plain_pod(name: str = "web", **spec: Any) -> dict[str, Any]:
    container = {"name": "web", "image": "nginx:1.29"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **spec},
    }


def create(cluster: ControlPlane, namespace: str, pod: dict[str, Any]) -> dict[str, Any]:
    return cluster.api.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)


def patch(cluster: ControlPlane, path: str, operation: dict[str, Any]) -> dict[str, Any]:
    """Change an object whose status others change at the same time."""
    return cluster.api.request("PATCH", path, [operation], "application/json-patch+json")


def debug(cluster: ControlPlane, namespace: str, container: dict[str, Any]) -> dict[str, Any]:
    """Add an ephemeral container to the Pod ``train``, as kubectl debug does."""
    path = f"/api/v1/namespaces/{namespace}/pods/train/ephemeralcontainers"
    added = {"op": "add", "path": "/spec/ephemeralContainers", "value": [container]}
    return patch(cluster, path, added)


@pytest.fixture
def restricted(control_plane: ControlPlane) -> str:
    """A namespace that enforces Pod Security restricted."""
    return control_plane.create_namespace("restricted-", RESTRICTED)


def test_a_cuda_pod_in_a_restricted_namespace_is_bound_to_the_gpu_node(
    control_plane: ControlPlane, restricted: str
) -> None:
    with control_plane.nodes(GPU_NODE, PLAIN_NODE):
        create(control_plane, restricted, cuda_pod())
        assert control_plane.bound_to(restricted, "train") == "gpu"


def test_a_plain_pod_is_not_mutated_and_is_bound_to_the_plain_node(
    control_plane: ControlPlane, namespace: str
) -> None:
    with control_plane.nodes(GPU_NODE, PLAIN_NODE):
        created = create(control_plane, namespace, plain_pod())
        assert "affinity" not in created["spec"]
        assert created["spec"]["securityContext"] == {}
        assert control_plane.bound_to(namespace, "web") == "plain"


def test_the_stored_pod_equals_the_output_of_mutate_with_defaults(
    control_plane: ControlPlane, restricted: str, tmp_path: Path
) -> None:
    manifest = tmp_path / "train.yaml"
    manifest.write_text(yaml.safe_dump(cuda_pod()))
    printed = subprocess.run(
        [COMMAND, "mutate", manifest], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    control_plane.kubectl("apply", "-n", restricted, "-f", str(manifest))
    stored = control_plane.kubectl.json("get", "pod", "train", "-n", restricted)
    # What `mutate` prints passes through the same defaults when it is created by itself, dry.
    expected = yaml.safe_load(printed)
    expected["metadata"]["name"] = "printed"
    defaulted = control_plane.api.request(
        "POST", f"/api/v1/namespaces/{restricted}/pods?dryRun=All", expected
    )
    assert _without_volatile(stored["spec"]) == _without_volatile(defaulted["spec"])
    assert _is_part(expected["spec"], stored["spec"])


def _without_volatile(spec: dict[str, Any]) -> dict[str, Any]:
    """Leave out the service account's token volume, whose name is random, and the binding.

    The order of the tolerations has no meaning, and depends on whose come first.
    """
    kept = {key: value for key, value in spec.items() if key not in ("volumes", "nodeName")}
    kept["tolerations"] = sorted(map(sorted, (t.items() for t in kept["tolerations"])), key=str)
    kept["containers"] = [
        {key: value for key, value in container.items() if key != "volumeMounts"}
        for container in spec["containers"]
    ]
    return kept


def _is_part(part: Any, whole: Any) -> bool:
    """Return whether `whole` contains `part`: numbers as strings, lists in any order."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and _is_part(value, whole[key]) for key, value in part.items()
        )
    if isinstance(part, list):
        return all(any(_is_part(item, other) for other in whole) for item in part)
    return str(part) == str(whole)


def test_a_dry_run_mutates_gpu_pods_and_denies_trespassers(
    control_plane: ControlPlane, namespace: str
) -> None:
    created = control_plane.api.request(
        "POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", cuda_pod()
    )
    assert TOLERATION in created["spec"]["tolerations"]
    with pytest.raises(ApiError, match="pool-trespass"):
        control_plane.api.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/pods?dryRun=All",
            plain_pod(tolerations=[TOLERATION]),
        )


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"])
def test_a_workload_that_trespasses_is_rejected_in_a_server_side_dry_run(
    control_plane: ControlPlane, namespace: str, kind: str
) -> None:
    workload = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": plain_pod(tolerations=[TOLERATION])["spec"],
            },
            **({"serviceName": "web"} if kind == "StatefulSet" else {}),
        },
    }
    with pytest.raises(KubectlError) as refused:
        control_plane.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(workload))
    message = str(refused.value)
    assert "pool-trespass" in message
    assert "spec.template.spec.tolerations[0]" in message
    if kind == "DaemonSet":
        assert "If GPU nodes need this agent, exempt its namespace in the policy" in message
    else:
        assert "Remove the toleration, or request a device" in message


def test_only_an_update_that_adds_the_toleration_is_denied(
    control_plane: ControlPlane, namespace: str
) -> None:
    create(control_plane, namespace, plain_pod())
    path = f"/api/v1/namespaces/{namespace}/pods/web"
    patch(control_plane, path, {"op": "add", "path": "/metadata/labels", "value": {"team": "web"}})
    added = {"op": "add", "path": "/spec/tolerations/-", "value": TOLERATION}
    with pytest.raises(ApiError, match="tolerates the taint of GPU nodes"):
        patch(control_plane, path, added)


def test_the_finalizer_of_a_pod_that_violates_the_policy_can_be_removed(
    control_plane: ControlPlane, fenced: Server, namespace: str
) -> None:
    trespasser = plain_pod(tolerations=[TOLERATION])
    trespasser["metadata"]["finalizers"] = ["example.com/hold"]
    with _unregistered(control_plane, fenced):
        create(control_plane, namespace, trespasser)
    path = f"/api/v1/namespaces/{namespace}/pods/web"
    patch(control_plane, path, {"op": "add", "path": "/metadata/labels", "value": {"team": "web"}})
    control_plane.api.request("DELETE", path)
    patch(control_plane, path, {"op": "remove", "path": "/metadata/finalizers"})
    until(lambda: _is_gone(control_plane, path), "the Pod to go", within=30)


def _is_gone(cluster: ControlPlane, path: str) -> bool:
    try:
        cluster.api.request("GET", path)
    except ApiError as error:
        return error.status == 404
    return False


@contextmanager
def _unregistered(cluster: ControlPlane, server: Server) -> Iterator[None]:
    unregister(cluster)
    try:
        yield
    finally:
        register(cluster, server.url, server.authority)


def test_kubectl_debug_adds_a_hardened_ephemeral_container_to_a_gpu_pod(
    control_plane: ControlPlane, restricted: str
) -> None:
    with control_plane.nodes(GPU_NODE):
        create(control_plane, restricted, cuda_pod())
        control_plane.bound_to(restricted, "train")
        control_plane.kubectl(
            "debug", "-n", restricted, "train", "--image=busybox:1.37", "--profile=restricted",
            "--container=look", "--quiet", "--attach=false",
        )  # fmt: skip
        pod = control_plane.kubectl.json("get", "pod", "train", "-n", restricted)
    [debugger] = pod["spec"]["ephemeralContainers"]
    context = debugger["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"]["drop"] == ["ALL"]


def test_an_ephemeral_container_without_a_security_context_is_hardened(
    control_plane: ControlPlane, restricted: str
) -> None:
    create(control_plane, restricted, cuda_pod())
    changed = debug(control_plane, restricted, {"name": "look", "image": "busybox:1.37"})
    [debugger] = changed["spec"]["ephemeralContainers"]
    assert debugger["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    # Made from a CUDA image it would see all GPUs of the node, and its Pod's are not mounted there.
    assert debugger["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]


def test_a_privileged_ephemeral_container_is_denied_with_its_field(
    control_plane: ControlPlane, namespace: str
) -> None:
    create(control_plane, namespace, cuda_pod())
    privileged = {"securityContext": {"privileged": True}}
    with pytest.raises(ApiError) as refused:
        debug(control_plane, namespace, {"name": "look", "image": "busybox:1.37", **privileged})
    assert "unrestricted-gpu-pod" in str(refused.value)
    assert "spec.ephemeralContainers[0].securityContext.privileged" in str(refused.value)


def test_a_sidecar_added_by_a_later_webhook_is_hardened_by_reinvocation(
    control_plane: ControlPlane, restricted: str, tmp_path: Path
) -> None:
    with sidecar_injector(control_plane, tmp_path):
        created = create(control_plane, restricted, cuda_pod())
    by_name = {container["name"]: container for container in created["spec"]["containers"]}
    assert set(by_name) == {"train", "proxy"}
    for container in by_name.values():
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in by_name["proxy"]["env"]
    tolerations = [t for t in created["spec"]["tolerations"] if t.get("key") == GPU]
    assert tolerations == [TOLERATION]


@contextmanager
def sidecar_injector(cluster: ControlPlane, directory: Path) -> Iterator[None]:
    """Run a mutating webhook that adds a container, registered to be called after gpufence."""
    issue([], ["127.0.0.1"], directory / "certs", datetime.now(UTC))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Injector)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "certs" / "tls.crt", directory / "certs" / "tls.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    configurations = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    bundle = base64.b64encode((directory / "certs" / "ca.crt").read_bytes()).decode()
    rule = {
        "operations": ["CREATE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods"],
    }
    webhook = {
        "name": "sidecar.example.com",
        "clientConfig": {
            "url": f"https://127.0.0.1:{server.server_port}/inject",
            "caBundle": bundle,
        },
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
    }
    # Webhooks are called in the order of their configurations' names.
    configuration = {"metadata": {"name": "zz-sidecar"}, "webhooks": [webhook]}
    try:
        cluster.api.request("POST", configurations, configuration)
        until(lambda: _injects(cluster), "the injector to be called", within=30)
        yield
    finally:
        cluster.api.request("DELETE", f"{configurations}/zz-sidecar")
        until(lambda: not _injects(cluster), "the injector to be forgotten", within=30)
        server.shutdown()
        thread.join()
        server.server_close()


def _injects(cluster: ControlPlane) -> bool:
    created = cluster.api.request(
        "POST", "/api/v1/namespaces/default/pods?dryRun=All", plain_pod("probe")
    )
    return len(created["spec"]["containers"]) == 2


class _Injector(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        proxy = {"name": "proxy", "image": "envoyproxy/envoy:v1.36"}
        names = [c["name"] for c in review["request"]["object"]["spec"]["containers"]]
        response: dict[str, Any] = {"uid": review["request"]["uid"], "allowed": True}
        if "proxy" not in names:
            patch = [{"op": "add", "path": "/spec/containers/-", "value": proxy}]
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
        answer = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": response,
        }
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""
