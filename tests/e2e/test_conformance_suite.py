"""Pods of the AI conformance suite, and Pods with NVIDIA's Preflight checks, in mode enforce.

``kubernetes-sigs/ai-conformance`` and the webhook of ``NVIDIA/NVSentinel`` create such Pods. The
policy is that of the pages that tell how to run them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import yaml

from controlplane.cluster import ControlPlane
from controlplane.devices import DRA, SELECTOR, device_class, driver_devices
from controlplane.fence import following
from controlplane.objects import GPU_NODE, TOLERATION, pod
from controlplane.poll import until
from controlplane.versions import CLAIMS
from paths import PROJECT
from specs import default_spec

JSON = dict[str, Any]

GPU = "nvidia.com/gpu"
PAGES = ("docs/operate/ai-conformance.md", "docs/operate/other-webhooks.md")
CHECKS: dict[str, list[str]] = {
    "dcgm-diag": [],
    "nccl-loopback": [],
    "nccl-allreduce": ["IPC_LOCK"],
}
"""The checks that are on by default, and the capabilities that they add."""


def shown() -> JSON:
    """Return the overrides and exceptions that the pages show for the namespaces of this test."""
    texts = [(PROJECT / page).read_text() for page in PAGES]
    blocks = [part.split("```")[0] for text in texts for part in text.split("```yaml\n")[1:]]
    specs = [yaml.safe_load(block).get("spec", {}) for block in blocks]
    return {
        key: [
            each
            for spec in specs
            for each in spec.get(key, ())
            if set(each["namespaces"]) & {"ai-conformance-*", "checked-*"}
        ]
        for key in ("overrides", "exceptions")
    }


@pytest.fixture(scope="module", autouse=True)
def server(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A registered webhook in mode enforce, with the policy of the pages and a GPU node."""
    spec = default_spec() | shown()
    directory = tmp_path_factory.mktemp("suites")
    with (
        following(control_plane, directory, spec) as running,
        control_plane.nodes(GPU_NODE),
    ):
        known = 'gpufence_cluster_objects{resource="nodes"}'
        until(lambda: running.metric(known) >= 1, "the node to be known")
        yield


def probing(*granted: JSON, **spec: Any) -> JSON:
    """Return a Pod of the suite: each container lists the device files that it sees."""
    command = ["/bin/sh", "-c", "ls /dev/nvidia[0-9]*; sleep 3600"]
    containers = [
        {"name": f"prober-{n}", "image": "ubuntu:22.04", "command": command, "resources": each}
        for n, each in enumerate(granted)
    ]
    return {
        "metadata": {"generateName": "probe-"},
        "spec": {"containers": containers, "tolerations": [TOLERATION], **spec},
    }


ONE: JSON = {"limits": {GPU: "1"}}


def test_the_conformance_suite_creates_its_pods(control_plane: ControlPlane) -> None:
    namespace = control_plane.create_namespace("ai-conformance-")
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    sends = control_plane.api.request
    sends("POST", path, probing(ONE))
    made = sends("POST", path, probing({}, nodeName="gpu"))
    # A kubelet rejects a Pod whose affinity does not match its node.
    assert "affinity" not in made["spec"]
    first, second = sends("POST", path, probing(ONE, {}))["spec"]["containers"]
    assert "env" not in first
    assert second["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]


def test_the_pod_of_the_suite_without_a_device_is_denied_elsewhere(
    control_plane: ControlPlane, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    refusal = control_plane.api.refusal(path, probing({}, nodeName="gpu"))
    assert "- pool-trespass: spec.tolerations[0]: " in refusal


@CLAIMS
def test_the_conformance_suite_creates_its_pods_with_claims(control_plane: ControlPlane) -> None:
    namespace = control_plane.create_namespace("ai-conformance-")
    request = {"name": "single", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    template = {
        "metadata": {"name": "template"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    claim = {"name": "claim", "resourceClaimTemplateName": "template"}
    with ExitStack() as stack:
        stack.enter_context(driver_devices(control_plane, "gpu"))
        stack.enter_context(device_class(control_plane, selectors=[SELECTOR]))
        templates = f"{DRA}/namespaces/{namespace}/resourceclaimtemplates"
        control_plane.api.request("POST", templates, template)
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        granted = {"claims": [{"name": "claim"}]}
        made = control_plane.api.request("POST", path, probing(granted, {}, resourceClaims=[claim]))
        assert "env" in made["spec"]["containers"][1]


def with_checks() -> JSON:
    """Return a GPU Pod with the checks that Preflight adds by default."""
    devices = {"limits": {GPU: "8"}, "requests": {GPU: "8"}}
    checks = [
        {
            "name": f"preflight-{name}",
            "image": f"ghcr.io/nvidia/nvsentinel/preflight-{name}:v1",
            "resources": devices,
            "volumeMounts": [{"name": "nvsentinel-socket", "mountPath": "/var/run"}],
            "securityContext": {"capabilities": {"add": capabilities}},
        }
        for name, capabilities in CHECKS.items()
    ]
    socket = {"path": "/var/run/nvsentinel", "type": "DirectoryOrCreate"}
    volumes = [{"name": "nvsentinel-socket", "hostPath": socket}]
    return pod({GPU: "8"}, "train", initContainers=checks, volumes=volumes)


def test_a_pod_with_the_checks_of_preflight_is_created(control_plane: ControlPlane) -> None:
    namespace = control_plane.create_namespace("checked-")
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    spec = control_plane.api.request("POST", path, with_checks())["spec"]
    assert "nodeAffinity" in spec["affinity"]
    assert spec["initContainers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_pod_with_the_checks_of_preflight_is_denied_elsewhere(
    control_plane: ControlPlane, namespace: str
) -> None:
    refusal = control_plane.api.refusal(f"/api/v1/namespaces/{namespace}/pods", with_checks())
    assert "- unrestricted-gpu-pod: spec.volumes[0].hostPath: " in refusal
    assert "IPC_LOCK" in refusal
