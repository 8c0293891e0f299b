"""Updates of existing objects on the real API server: only new trespass is denied.

What was admitted before today's policy must be able to live on, to shrink and to go.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.fence import Fence
from controlplane.objects import GPU_NODE, TOLERATION, workload
from controlplane.poll import until
from controlplane.versions import RESIZE, SUSPENDED_JOBS
from controlplane.webhooks import wait_until_called
from deciding import required, term
from each import each
from specs import JSON

GPU = "nvidia.com/gpu"
PRESENT = "nvidia.com/gpu.present"
ZONE = "topology.kubernetes.io/zone"
HOLD = "example.com/hold"
GATE = [{"name": "example.com/wait"}]
NOWHERE = "https://127.0.0.1:1"
"""A port without a listener: port 1 is privileged, and the tests never open it."""


@contextmanager
def lenient(fence: Fence) -> Iterator[None]:
    """Apply an earlier policy inside the block, which admits every Pod to the GPU nodes."""
    yesterday = copy.deepcopy(fence.policy)
    yesterday["rules"]["pool-trespass"] = "off"
    with fence.other_policy(yesterday):
        yield


@contextmanager
def unreachable(cluster: ControlPlane, fence: Fence, pod: str) -> Iterator[None]:
    """Let the API server reach no replica inside the block.

    ``pod`` is the path of a GPU Pod, and changes of its spec then fail.
    """
    fence.register(NOWHERE)
    try:
        until(lambda: fails(cluster, pod), "the API server to call in vain")
        yield
        assert fails(cluster, pod)
    finally:
        fence.register()
        until(lambda: not fails(cluster, pod), "the API server to call gpufence again")
        wait_until_called(cluster)


def fails(cluster: ControlPlane, pod: str) -> bool:
    try:
        merge(cluster, f"{pod}?dryRun=All", {"spec": {"activeDeadlineSeconds": 3600}})
    except ApiError as error:
        return "failed calling webhook" in str(error)
    return False


# ----------------------------------------------------------------------------------- the objects


def plain_spec(**spec: Any) -> JSON:
    containers = [{"name": "web", "image": "nginx:1.29"}]
    return {"containers": containers, "terminationGracePeriodSeconds": 0, **spec}


GPU_CONTAINER = {
    "name": "train",
    "image": "pytorch:2.9",
    "resources": {"limits": {GPU: "1"}, "requests": {"cpu": "100m"}},
}


def gpu_spec(**spec: Any) -> JSON:
    return plain_spec(**{"containers": [dict(GPU_CONTAINER)], **spec})


class Namespace:
    """What a test does in its namespace."""

    def __init__(self, cluster: ControlPlane, name: str) -> None:
        self.cluster = cluster
        self.name = name

    def pod(self, spec: JSON, name: str = "pod", **metadata: Any) -> str:
        """Create a Pod, and return its path."""
        path = f"/api/v1/namespaces/{self.name}/pods"
        pod = {"metadata": {"name": name, **metadata}, "spec": spec}
        self.cluster.api.request("POST", path, pod)
        return f"{path}/{name}"

    def workload(self, kind: str, spec: JSON, **metadata: Any) -> str:
        """Create a Deployment or a Job named `web`, and return its path."""
        group = "batch" if kind == "Job" else "apps"
        path = f"/apis/{group}/v1/namespaces/{self.name}/{kind.lower()}s"
        self.cluster.api.request("POST", path, {"metadata": {"name": "web", **metadata}, **spec})
        return f"{path}/web"

    def deployment(self, spec: JSON, replicas: int = 1, **metadata: Any) -> str:
        # Without kubelets no Pod becomes ready, and a rolling update would wait for it.
        recreate = {"strategy": {"type": "Recreate"}}
        made = workload("Deployment", "web", spec, replicas=replicas, **recreate)
        return self.workload("Deployment", {"spec": made["spec"]}, **metadata)

    def pods(self) -> list[JSON]:
        path = f"/api/v1/namespaces/{self.name}/pods"
        found: list[JSON] = self.cluster.api.request("GET", path)["items"]
        return found

    def wait_for_pods(self, count: int) -> list[JSON]:
        until(lambda: len(self.pods()) == count, f"{count} Pods in {self.name}")
        return self.pods()


@pytest.fixture
def space(control_plane: ControlPlane, fence: Fence, namespace: str) -> Iterator[Namespace]:
    yield Namespace(control_plane, namespace)
    # Controllers whose Pods are denied would retry.
    for kind in ("apps/v1/namespaces/{}/deployments", "batch/v1/namespaces/{}/jobs"):
        path = f"/apis/{kind.format(namespace)}?propagationPolicy=Background"
        control_plane.api.request("DELETE", path)


def merge(cluster: ControlPlane, path: str, change: JSON) -> JSON:
    return cluster.api.request("PATCH", path, change, "application/merge-patch+json")


def strategic(cluster: ControlPlane, path: str, change: JSON) -> JSON:
    return cluster.api.request("PATCH", path, change, "application/strategic-merge-patch+json")


def get(cluster: ControlPlane, path: str) -> JSON:
    return cluster.api.request("GET", path)


def is_gone(cluster: ControlPlane, path: str) -> bool:
    try:
        get(cluster, path)
    except ApiError as error:
        return error.status == 404
    return False


# ------------------------------------------------------------------------------ scheduling gates


[IN_ZONE] = term(f"{ZONE} In a")["matchExpressions"]
NARROWED: dict[str, tuple[JSON, JSON]] = {
    "gpu-pod": ({"containers": [GPU_CONTAINER]}, {"nodeSelector": {PRESENT: "false"}}),
    "selector": ({}, {"nodeSelector": {PRESENT: "true"}}),
    "further-selector": ({"nodeSelector": {ZONE: "a"}}, {"nodeSelector": {PRESENT: "true"}}),
    "affinity": ({}, required(f"{PRESENT} In true")),
    "further-expression": (
        required({"matchExpressions": [IN_ZONE]}),
        required({"matchExpressions": [IN_ZONE, *term(f"{PRESENT} In true")["matchExpressions"]]}),
    ),
    "gate-removed": ({}, {"nodeSelector": {PRESENT: "true"}, "schedulingGates": []}),
}


def test_narrowing_a_gated_pod_to_gpu_nodes_is_denied(
    control_plane: ControlPlane, space: Namespace
) -> None:
    def is_denied(case: str) -> None:
        before, narrowed = NARROWED[case]
        path = space.pod(plain_spec(**{"schedulingGates": GATE, **before}), case)
        places = r"(?s)pool-trespass.*places the Pod on GPU nodes"
        message = "unschedulable-gpu-pod" if case == "gpu-pod" else places
        with pytest.raises(ApiError, match=message):
            merge(control_plane, path, {"spec": narrowed})

    each(NARROWED, is_denied)


def test_a_gpu_pod_whose_gate_is_removed_is_bound_to_a_gpu_node(
    control_plane: ControlPlane, space: Namespace
) -> None:
    path = space.pod(gpu_spec(schedulingGates=GATE))
    with control_plane.nodes(GPU_NODE):
        merge(control_plane, path, {"spec": {"schedulingGates": []}})
        assert control_plane.bound_to(space.name, "pod") == "gpu"
        control_plane.api.request("DELETE", path)


def test_the_gate_of_a_pod_that_violates_the_policy_can_be_removed(
    control_plane: ControlPlane, fence: Fence, space: Namespace
) -> None:
    with lenient(fence):
        path = space.pod(plain_spec(schedulingGates=GATE, nodeSelector={PRESENT: "true"}))
    changed = merge(control_plane, path, {"spec": {"schedulingGates": []}})
    assert "schedulingGates" not in changed["spec"]


# ---------------------------------------------------------------------------------- subresources


@RESIZE
def test_a_resize_of_a_gpu_pod_is_admitted(control_plane: ControlPlane, space: Namespace) -> None:
    path = space.pod(gpu_spec())
    more = {"name": "train", "resources": {"requests": {"cpu": "200m"}}}
    changed = strategic(control_plane, f"{path}/resize", {"spec": {"containers": [more]}})
    assert changed["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "200m"


@RESIZE
def test_a_pod_that_violates_the_policy_can_be_resized_and_debugged(
    control_plane: ControlPlane, fence: Fence, space: Namespace
) -> None:
    resources = {"requests": {"cpu": "100m"}}
    container = {"name": "web", "image": "nginx:1.29", "resources": resources}
    with lenient(fence):
        path = space.pod(plain_spec(containers=[container], tolerations=[TOLERATION]))
    more = {"name": "web", "resources": {"requests": {"cpu": "200m"}}}
    changed = strategic(control_plane, f"{path}/resize", {"spec": {"containers": [more]}})
    assert changed["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "200m"
    look = {"spec": {"ephemeralContainers": [{"name": "look", "image": "busybox:1.37"}]}}
    changed = strategic(control_plane, f"{path}/ephemeralcontainers", look)
    assert [each["name"] for each in changed["spec"]["ephemeralContainers"]] == ["look"]


def test_metadata_subresource_and_deletion_requests_need_no_webhook(
    control_plane: ControlPlane, fence: Fence, space: Namespace
) -> None:
    path = space.pod(gpu_spec())
    deployment = space.deployment(gpu_spec(), replicas=0)
    with unreachable(control_plane, fence, path):
        merge(control_plane, path, {"metadata": {"labels": {"seen": "yes"}}})
        condition = {"type": "example.com/Ready", "status": "True"}
        strategic(control_plane, f"{path}/status", {"status": {"conditions": [condition]}})
        merge(control_plane, f"{deployment}/status", {"status": {"observedGeneration": 7}})
        merge(control_plane, f"{deployment}/scale", {"spec": {"replicas": 0}})
        merge(control_plane, deployment, {"spec": {"minReadySeconds": 5}})
        image = {"containers": [{"name": "train", "image": "another"}]}
        with pytest.raises(ApiError, match=r'failed calling webhook "pods\.gpufence\.dev"'):
            strategic(control_plane, deployment, {"spec": {"template": {"spec": image}}})
        with control_plane.nodes(GPU_NODE):
            assert control_plane.bound_to(space.name, "pod") == "gpu"
        control_plane.api.request("DELETE", f"{path}?dryRun=All")
    # Without its node, the Pod is garbage, and its controller may be first.
    control_plane.kubectl("delete", "pod", "pod", "-n", space.name, "--ignore-not-found")


# -------------------------------------------------------------------------- deletion, finalizers


def test_updates_of_objects_that_are_being_deleted_are_admitted(
    control_plane: ControlPlane, space: Namespace
) -> None:
    pod = space.pod(plain_spec(), finalizers=[HOLD])
    tolerations = [*get(control_plane, pod)["spec"]["tolerations"], TOLERATION]
    deployment = space.deployment(plain_spec(), replicas=0, finalizers=[HOLD])
    worse: dict[str, JSON] = {
        pod: {"spec": {"tolerations": tolerations}},
        deployment: {"spec": {"template": {"spec": {"tolerations": [TOLERATION]}}}},
    }
    for path, change in worse.items():
        with pytest.raises(ApiError, match="pool-trespass"):
            merge(control_plane, path, change)
        control_plane.api.request("DELETE", path)
        merge(control_plane, path, change)
        merge(control_plane, path, {"metadata": {"finalizers": None}})
    until(lambda: all(is_gone(control_plane, path) for path in worse), "both objects to go")


def test_the_job_controller_can_release_pods_that_violate_the_policy(
    control_plane: ControlPlane, fence: Fence, space: Namespace
) -> None:
    spec = plain_spec(tolerations=[TOLERATION], restartPolicy="Never")
    with lenient(fence):
        path = space.workload("Job", {"spec": {"parallelism": 2, "template": {"spec": spec}}})
        pods = space.wait_for_pods(2)
    assert all("batch.kubernetes.io/job-tracking" in p["metadata"]["finalizers"] for p in pods)
    control_plane.api.request("DELETE", f"{path}?propagationPolicy=Background")
    space.wait_for_pods(0)


# ------------------------------------------------------------ workloads from before the policy


@pytest.fixture
def old_deployment(fence: Fence, space: Namespace) -> str:
    """The path of a Deployment with one Pod whose template the current policy denies."""
    with lenient(fence):
        path = space.deployment(plain_spec(tolerations=[TOLERATION]))
        space.wait_for_pods(1)
    return path


def complaint(cluster: ControlPlane, deployment: str) -> str:
    """Return why the Deployment's controllers get nothing created; "" if they say nothing."""
    conditions = get(cluster, deployment)["status"].get("conditions") or ()
    failed = {("ReplicaFailure", "True"), ("Progressing", "False")}
    return "; ".join(c["message"] for c in conditions if (c["type"], c["status"]) in failed)


def test_a_violating_deployment_can_be_scaled_but_new_pods_are_denied(
    control_plane: ControlPlane, space: Namespace, old_deployment: str
) -> None:
    merge(control_plane, f"{old_deployment}/scale", {"spec": {"replicas": 2}})
    merge(control_plane, old_deployment, {"spec": {"replicas": 3}})
    # The controllers' own changes pass, too: what is missing are the Pods.
    sets = f"/apis/apps/v1/namespaces/{space.name}/replicasets"
    until(
        lambda: [each["spec"]["replicas"] for each in get(control_plane, sets)["items"]] == [3],
        "the ReplicaSet to be scaled",
    )
    until(lambda: complaint(control_plane, old_deployment), "the Pods to be refused")
    assert "lets the Pod run on GPU nodes" in complaint(control_plane, old_deployment)
    assert len(space.pods()) == 1
    merge(control_plane, f"{old_deployment}/scale", {"spec": {"replicas": 0}})
    space.wait_for_pods(0)


def test_a_new_image_in_a_violating_template_warns_and_the_rollout_fails(
    control_plane: ControlPlane, space: Namespace, old_deployment: str
) -> None:
    output = control_plane.kubectl(
        "set", "image", "deployment/web", "web=nginx:1.30", "-n", space.name
    ).stderr
    assert output.startswith(
        "Warning: not denied, because the old object has it too: pool-trespass: "
    )
    until(lambda: complaint(control_plane, old_deployment), "the rollout to fail")
    assert "lets the Pod run on GPU nodes" in complaint(control_plane, old_deployment)
    assert all(pod["spec"]["containers"][0]["image"] == "nginx:1.29" for pod in space.pods())


# ----------------------------------------------------------------------------------------- Jobs


def suspended_job(space: Namespace, spec: JSON) -> str:
    template = {"spec": {**spec, "restartPolicy": "Never"}}
    return space.workload("Job", {"spec": {"suspend": True, "template": template}})


def requesting(count: int) -> JSON:
    """Return a patch of the devices of a suspended Job, which Kubernetes 1.36 accepts."""
    devices = {"limits": {GPU: str(count)}, "requests": {GPU: str(count)}}
    containers = [{"name": "train", "resources": devices}]
    return {"spec": {"template": {"spec": {"containers": containers}}}}


@SUSPENDED_JOBS
def test_pods_of_a_suspended_job_with_added_devices_are_mutated(
    control_plane: ControlPlane, space: Namespace
) -> None:
    plain = gpu_spec()
    plain["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    with control_plane.nodes(GPU_NODE):
        job = suspended_job(space, plain)
        strategic(control_plane, job, requesting(1))
        merge(control_plane, job, {"spec": {"suspend": False}})
        [pod] = space.wait_for_pods(1)
        assert TOLERATION in pod["spec"]["tolerations"]
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert control_plane.bound_to(space.name, pod["metadata"]["name"]) == "gpu"
        merge(control_plane, job, {"spec": {"suspend": True}})
        space.wait_for_pods(0)
