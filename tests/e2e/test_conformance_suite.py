"""Pods of the AI conformance suite, and Pods with NVIDIA's Preflight checks, in mode enforce.

``kubernetes-sigs/ai-conformance`` and the webhook of ``NVIDIA/NVSentinel`` create such Pods. The
policy is that of the pages that tell how to run them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.cluster import ControlPlane
from controlplane.devices import DRA, SELECTOR, device_class, driver_devices
from controlplane.fence import following
from controlplane.objects import GPU_NODE, TOLERATION, claim_template, pod
from controlplane.poll import until
from controlplane.versions import CLAIMS
from controlplane.webhooks import ADMISSION
from paths import PROJECT
from release.recorder import Patching
from specs import JSON, default_spec

GPU = "nvidia.com/gpu"
SELECTED = {"nvsentinel.nvidia.com/preflight": "enabled"}
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
    template = claim_template("template", "gpu.nvidia.com")
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


class Preflight(Patching):
    """Answers as the webhook of Preflight does, with the checks and values of its chart."""

    def patch(self, obj: JSON) -> list[JSON]:
        spec = obj["spec"]
        amounts = [each["resources"].get("limits", {}) for each in spec["containers"]]
        devices = {GPU: max(int(each.get(GPU, 0)) for each in amounts)}
        if not devices[GPU]:
            return []
        checks = [self._check(name, devices) for name in CHECKS]
        socket = {"path": "/var/run/nvsentinel", "type": "DirectoryOrCreate"}
        volume = {"name": "nvsentinel-socket", "hostPath": socket}
        patch: list[JSON] = [{"op": "add", "path": "/spec/initContainers", "value": checks}]
        if spec.get("initContainers"):
            path = "/spec/initContainers/-"
            patch = [{"op": "add", "path": path, "value": check} for check in checks]
        if not spec.get("volumes"):
            patch.append({"op": "add", "path": "/spec/volumes", "value": [volume]})
        elif volume["name"] not in {each["name"] for each in spec["volumes"]}:
            patch.append({"op": "add", "path": "/spec/volumes/-", "value": volume})
        return patch

    def _check(self, name: str, devices: JSON) -> JSON:
        requests = {**devices, "cpu": "100m", "memory": "500Mi"}
        capabilities = {"capabilities": {"add": CHECKS[name]}}
        return {
            "name": f"preflight-{name}",
            "image": f"ghcr.io/nvidia/nvsentinel/preflight-{name}:v1",
            "resources": {"limits": devices, "requests": requests},
            "volumeMounts": [{"name": "nvsentinel-socket", "mountPath": "/var/run"}],
            "env": [{"name": "PLATFORM_CONNECTOR_SOCKET", "value": "unix:///var/run/x.sock"}],
            **({"securityContext": capabilities} if CHECKS[name] else {}),
        }


@contextmanager
def preflight(
    cluster: ControlPlane, directory: Path, name: str = "preflight", reinvocation: str = "Never"
) -> Iterator[None]:
    """Register the webhook of Preflight; API servers call configurations in the order of names."""
    directory.mkdir()
    path = f"{ADMISSION}/mutatingwebhookconfigurations"
    with Preflight(directory) as webhook:
        cluster.api.request("POST", path, webhook.configuration(name, SELECTED, reinvocation))
        namespace = cluster.create_namespace("observed-", SELECTED)
        observed = f"/api/v1/namespaces/{namespace}/pods"

        def is_called() -> bool:
            cluster.api.refusal(observed, pod({GPU: "8"}))
            return bool(webhook.endpoints)

        until(is_called, "the API server to call Preflight")
        yield
        cluster.api.request("DELETE", f"{path}/{name}")


def test_a_pod_with_the_checks_of_preflight_is_created(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    checked = control_plane.create_namespace("checked-", SELECTED)
    other = control_plane.create_namespace("other-", SELECTED)
    train = pod({GPU: "8"}, "train")
    for name in ("preflight", "a-preflight"):
        with preflight(control_plane, tmp_path / name, name):
            path = f"/api/v1/namespaces/{checked}/pods?dryRun=All"
            spec = control_plane.api.request("POST", path, train)["spec"]
            refusal = control_plane.api.refusal(f"/api/v1/namespaces/{other}/pods", train)
        names = [each["name"] for each in spec["initContainers"]]
        assert names == [f"preflight-{check}" for check in CHECKS]
        assert "nodeAffinity" in spec["affinity"]
        capabilities = [each["securityContext"]["capabilities"] for each in spec["initContainers"]]
        assert capabilities[0] == {"drop": ["ALL"]}
        assert capabilities[2]["add"] == ["IPC_LOCK"]
        assert "- unrestricted-gpu-pod: spec.volumes[" in refusal
        assert "].hostPath: " in refusal
        assert "IPC_LOCK" in refusal


def test_preflight_adds_its_checks_twice_without_gpufence_as_well(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    """So the page tells to change its reinvocation policy. gpufence exempts the namespace."""
    exempt = control_plane.create_namespace("node-feature-discovery", SELECTED)
    with preflight(control_plane, tmp_path / "preflight", reinvocation="IfNeeded"):
        refusal = control_plane.api.refusal(f"/api/v1/namespaces/{exempt}/pods", pod({GPU: "8"}))
    assert 'Duplicate value: "preflight-dcgm-diag"' in refusal
