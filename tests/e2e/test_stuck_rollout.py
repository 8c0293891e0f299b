"""An update that waits for a GPU that only its old Pod can free, with the real controllers.

No kubelet runs here: the test marks Pods ready once the scheduler has bound them, and API servers
delete Pods at once, because their grace period is 0.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.fence import Fence
from controlplane.objects import node, taint, workload
from controlplane.poll import until
from specs import JSON

GPU = "nvidia.com/gpu"
THE_ONLY_GPU = node(
    "one-gpu",
    labels={"nvidia.com/gpu.present": "true"},
    taints=[taint(GPU, "present")],
    resources={GPU: "1"},
)
OLD, NEW = "registry.example/llm:1", "registry.example/llm:2"
RUNNING = {
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
}
MERGE = "application/strategic-merge-patch+json"


def one_replica(kind: str, image: str, **fields: Any) -> JSON:
    resources = {"limits": {GPU: "1"}, "requests": {"cpu": "100m"}}
    container = {"name": "llm", "image": image, "resources": resources}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return workload(kind, "llm", spec, replicas=1, **fields)


class Rollout:
    """A workload with one replica in a cluster with one GPU."""

    def __init__(self, cluster: ControlPlane, namespace: str, kind: str, **fields: Any) -> None:
        self._cluster, self._namespace = cluster, namespace
        self._kind, self._fields = kind, fields

    def apply(self, image: str, **fields: Any) -> str:
        """Apply the workload, and return the warnings that kubectl prints."""
        obj = one_replica(self._kind, image, **self._fields, **fields)
        arguments = ("apply", "-n", self._namespace, "-f", "-")
        return self._cluster.kubectl(*arguments, stdin=yaml.safe_dump(obj)).stderr

    def status(self) -> JSON:
        """Return the status of the workload if its controller has seen the latest change."""
        path = f"/apis/apps/v1/namespaces/{self._namespace}/{self._kind.lower()}s/llm"
        obj = self._cluster.api.request("GET", path)
        status: JSON = obj["status"]
        is_current = status.get("observedGeneration") == obj["metadata"]["generation"]
        return status if is_current else {}

    def placements(self) -> list[tuple[str, str]]:
        """Return the image and the node of each Pod, after marking bound Pods ready."""
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        pods = self._cluster.api.request("GET", path)["items"]
        for pod in pods:
            if pod["spec"].get("nodeName") and pod["status"].get("phase") != "Running":
                name = pod["metadata"]["name"]
                try:
                    self._cluster.api.request("PATCH", f"{path}/{name}/status", RUNNING, MERGE)
                except ApiError as error:
                    # Its controller has deleted it.
                    if error.status != 404:
                        raise
        specs = [pod["spec"] for pod in pods]
        return sorted((spec["containers"][0]["image"], spec.get("nodeName", "")) for spec in specs)

    def is_complete(self, image: str) -> bool:
        """Return whether one ready Pod runs the image, and there is no other."""
        if self.placements() != [(image, "one-gpu")]:
            return False
        status = self.status()
        return status.get("updatedReplicas") == status.get("availableReplicas") == 1

    def given_up(self) -> str:
        """Return why the Deployment controller says that the update makes no progress."""
        self.placements()
        conditions = {each["type"]: each for each in self.status().get("conditions") or ()}
        progressing = conditions.get("Progressing", {})
        is_over = progressing.get("reason") == "ProgressDeadlineExceeded"
        return str(progressing["message"]) if is_over else ""


def test_the_remediation_ends_an_update_that_waits_for_its_own_gpu(
    control_plane: ControlPlane, fence: Fence, namespace: str
) -> None:
    rollout = Rollout(control_plane, namespace, "Deployment", progressDeadlineSeconds=2)
    with control_plane.nodes(THE_ONLY_GPU), fence.registered():
        assert "stuck-rollout" in rollout.apply(OLD)
        until(lambda: rollout.is_complete(OLD), "the first Pod to be ready")

        warning = rollout.apply(NEW)
        given_up = until(rollout.given_up, "the controller to give up")
        assert rollout.placements() == [(OLD, "one-gpu"), (NEW, "")]
        pending = ("-l", "app=llm", "-n", namespace, "--field-selector", "status.phase=Pending")
        [pod] = control_plane.kubectl.json("get", "pods", *pending)["items"]
        reason = control_plane.unschedulable(namespace, pod["metadata"]["name"])
        assert f"Insufficient {GPU}" in reason
        print(f"\n{warning}{given_up}\n{reason}")

        remediation = re.search(r"Set rollingUpdate: (\{.*?\}) in spec.strategy", warning)
        assert remediation
        strategy = {"rollingUpdate": yaml.safe_load(remediation[1])}
        assert "stuck-rollout" not in rollout.apply(NEW, strategy=strategy)
        until(lambda: rollout.is_complete(NEW), "the update to end")
        print(f"with {strategy}: {rollout.placements()}")


def test_an_update_of_a_stateful_set_takes_the_gpu_of_its_old_pod(
    control_plane: ControlPlane, fence: Fence, namespace: str
) -> None:
    rollout = Rollout(control_plane, namespace, "StatefulSet")
    with control_plane.nodes(THE_ONLY_GPU), fence.registered():
        assert "stuck-rollout" not in rollout.apply(OLD)
        until(lambda: rollout.is_complete(OLD), "the first Pod to be ready")
        assert "stuck-rollout" not in rollout.apply(NEW)
        until(lambda: rollout.is_complete(NEW), "the update to end")
