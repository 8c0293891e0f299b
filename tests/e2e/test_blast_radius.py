"""How far the damage goes when every replica is dead: GPU Pods, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from controlplane import webhooks
from controlplane.api import ApiError
from controlplane.cluster import ControlPlane
from controlplane.objects import node, taint, workload
from controlplane.poll import until
from release.load import GPU_POD
from release.release import release


@pytest.fixture(scope="module")
def abandoned(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A cluster whose replicas of gpufence were all killed after they had registered.

    In namespace `before` there is a GPU Pod that a finalizer holds, and a Deployment of none yet.
    """
    with release(control_plane, tmp_path_factory.mktemp("release")) as released:
        with released.replicas(2) as replicas:
            control_plane.create_namespace("before")
            held = {**GPU_POD, "metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
            control_plane.api.request("POST", "/api/v1/namespaces/before/pods", held)
            deployment = workload("Deployment", "served", GPU_POD["spec"], replicas=0)
            apps = "/apis/apps/v1/namespaces/before"
            control_plane.api.request("POST", f"{apps}/deployments", deployment)
            sets = f"{apps}/replicasets"
            until(lambda: control_plane.api.request("GET", sets)["items"], "its ReplicaSet")
            for replica in replicas:
                replica.kill()
        until(lambda: released.service.endpoints == 0, "the Service to have no endpoints")
        assert len(released.configurations()) == 2
        yield control_plane


def pod(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"generateName": "plain-"},
        "spec": {"containers": [{"name": "main", "image": "nginx"}], **spec},
    }


RESOURCES = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1"}}
ENV = [{"name": "A", "value": "b"}]
PLAIN = (
    pod(),
    pod(
        containers=[{"name": "main", "image": "nginx", "resources": RESOURCES, "env": ENV}],
        initContainers=[{"name": "init", "image": "busybox"}],
    ),
    pod(
        nodeSelector={"kubernetes.io/os": "linux"},
        tolerations=[{"key": "spot", "operator": "Exists"}],
    ),
    pod(volumes=[{"name": "scratch", "emptyDir": {}}]),
)


def test_plain_pods_are_created_and_updated_without_a_webhook_call(
    abandoned: ControlPlane, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"

    def no_webhook_is_called() -> bool:
        before = webhooks.calls(abandoned.api.text("/metrics"))
        for plain in PLAIN:
            created = abandoned.api.request("POST", path, plain)
            abandoned.api.request(
                "PATCH",
                f"{path}/{created['metadata']['name']}",
                {"metadata": {"labels": {"updated": "yes"}}},
                "application/merge-patch+json",
            )
        return webhooks.calls(abandoned.api.text("/metrics")) == before

    # A controller may create Pods of another test meanwhile, and the API server counts all calls.
    until(no_webhook_is_called, "these Pods to be created without a call")


def test_pods_of_a_plain_deployment_are_created(abandoned: ControlPlane, namespace: str) -> None:
    kubectl = abandoned.kubectl
    kubectl("create", "deployment", "web", "--image=nginx", "--replicas=2", "-n", namespace)

    def count() -> int:
        return len(kubectl.json("get", "pods", "-l", "app=web", "-n", namespace)["items"])

    until(lambda: count() == 2, "two Pods of the Deployment")


@contextmanager
def agent_on(cluster: ControlPlane, namespace: str, node_name: str) -> Iterator[None]:
    """Run a DaemonSet that tolerates every taint, and wait for its Pod on the only node."""
    spec = {**pod()["spec"], "tolerations": [{"operator": "Exists"}]}
    agents = workload("DaemonSet", "agent", spec)
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
    pods = f"/api/v1/namespaces/{namespace}/pods?labelSelector=app%3Dagent"

    def placed() -> list[str]:
        items = cluster.api.request("GET", pods)["items"]
        return [item["spec"].get("nodeName", "") for item in items]

    cluster.api.request("POST", path, agents)
    try:
        until(lambda: placed() == [node_name], f"the agent's Pod on the node {node_name}")
        yield
    finally:
        cluster.api.request("DELETE", f"{path}/agent")
        # No kubelet is there to end it.
        cluster.api.request("DELETE", f"{pods}&gracePeriodSeconds=0")


def test_a_node_agent_starts_on_a_new_node(abandoned: ControlPlane, namespace: str) -> None:
    """The Pods of a DaemonSet may tolerate every taint, in any namespace."""
    joined = node("joined", taints=[taint("nvidia.com/gpu", "present")])
    with abandoned.nodes(joined), agent_on(abandoned, namespace, "joined"):
        pass
    # A Pod that its author creates is no agent, whatever owner it names.
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "1"}
    agent = {**pod()["spec"], "tolerations": [{"operator": "Exists"}]}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    metadata = {"generateName": "forged-", "ownerReferences": [{**owner, "controller": True}]}
    with pytest.raises(ApiError, match=r'failed calling webhook "pods\.gpufence\.dev"|denied'):
        abandoned.api.request("POST", pods, {"metadata": metadata, "spec": agent})


def test_an_existing_gpu_pod_can_be_labeled_and_deleted(
    abandoned: ControlPlane,
) -> None:
    kubectl = abandoned.kubectl
    kubectl("label", "pod", "held", "-n", "before", "seen=yes")
    kubectl("delete", "pod", "held", "-n", "before", "--wait=false", "--force", "--grace-period=0")
    abandoned.api.request(
        "PATCH",
        "/api/v1/namespaces/before/pods/held",
        {"metadata": {"finalizers": None}},
        "application/merge-patch+json",
    )
    assert not kubectl.json("get", "pods", "--field-selector=metadata.name=held", "-n", "before")[
        "items"
    ]


def test_an_existing_deployment_can_be_changed_except_for_its_template(
    abandoned: ControlPlane,
) -> None:
    path = "/apis/apps/v1/namespaces/before/deployments/served"
    merge = "application/merge-patch+json"
    abandoned.api.request("PATCH", path, {"spec": {"minReadySeconds": 5}}, merge)
    containers = [{**GPU_POD["spec"]["containers"][0], "image": "another"}]
    worse = {"spec": {"template": {"spec": {"containers": containers}}}}
    with pytest.raises(ApiError, match=r'failed calling webhook "pods\.gpufence\.dev"'):
        abandoned.api.request("PATCH", path, worse, merge)


@pytest.mark.parametrize("excluded", ["kube-system", "gpu-operator"])
def test_gpu_pods_are_created_in_excluded_namespaces(
    abandoned: ControlPlane, excluded: str
) -> None:
    # Another test may have made it.
    with suppress(ApiError):
        abandoned.create_namespace(excluded)
    path = f"/api/v1/namespaces/{excluded}/pods?dryRun=All"
    abandoned.api.request("POST", path, GPU_POD)
    abandoned.api.request("POST", path, pod(tolerations=[{"operator": "Exists"}]))


def test_the_cluster_recovers_without_gpufence_after_a_full_restart(
    abandoned: ControlPlane, namespace: str
) -> None:
    abandoned.stop()
    abandoned.start()
    gpu_node = node(
        "back-again",
        labels={"nvidia.com/gpu.present": "true"},
        taints=[taint("nvidia.com/gpu", "present")],
        resources={"nvidia.com/gpu": "8"},
    )
    with abandoned.nodes(gpu_node), agent_on(abandoned, "kube-system", "back-again"):
        created = abandoned.api.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod())
        assert created["metadata"]["name"].startswith("plain-")
