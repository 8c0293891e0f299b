"""GPU Pods while every replica is dead: the API server mutates them, and they are scheduled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import yaml

from controlplane.api import Api, ApiError
from controlplane.cluster import ControlPlane
from controlplane.poll import until
from controlplane.versions import MUTATING_POLICIES
from policies.engine import validate
from policies.facts import Request
from release.release import release
from specs import fence_policy, policy_of

pytestmark = MUTATING_POLICIES

JSON = dict[str, Any]
PRODUCT = "nvidia.com/gpu.product"
TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}


def pool(name: str, product: str, **fields: Any) -> JSON:
    return {
        "name": name,
        "resources": ["nvidia.com/gpu"],
        "taints": [TAINT],
        "nodeSelector": {PRODUCT: product},
        **fields,
    }


SPEC = {
    "pools": [
        pool("a100", "A100"),
        pool("h100", "H100"),
        pool("b200", "B200", allowedNamespaces={"names": ["research"]}),
        pool("mig", "A30", resources=["nvidia.com/mig-*"]),
    ],
}
NODES = {"A100": "nvidia.com/gpu", "H100": "nvidia.com/gpu", "B200": "nvidia.com/gpu"} | {
    "A30": "nvidia.com/mig-1g.6gb",
    "": "",
}
"""By product, the resource that its node has 200 times; one node has none."""


@pytest.fixture(scope="module")
def cluster(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A control plane with a node of each product, and a release whose replica is dead."""
    directory = tmp_path_factory.mktemp("without-replicas")
    file = directory / "policy.yaml"
    file.write_text(yaml.safe_dump(fence_policy(SPEC)))
    api = control_plane.api
    names = [create_node(api, product, resource) for product, resource in NODES.items()]
    control_plane.create_namespace("research")
    flags, mutates = ("--policy", str(file)), ["--mutating-policy"]
    with (
        release(control_plane, directory) as released,
        released.replicas(1, *flags, controller=mutates) as running,
    ):
        until(released.mutates, "the policy that mutates")
        running.replicas[0].kill()
        until(lambda: not api.refusal(pods("default"), gpu_pod()), "the API server to mutate")
        yield control_plane
    for name in names:
        api.request("DELETE", f"/api/v1/nodes/{name}")
    for namespace in ("default", "research"):
        for left in api.request("GET", pods(namespace))["items"]:
            path = f"{pods(namespace)}/{left['metadata']['name']}?gracePeriodSeconds=0"
            with suppress(ApiError):
                api.request("DELETE", path)


def create_node(api: Api, product: str, resource: str) -> str:
    name = f"node-{product.lower() or 'cpu'}"
    size = {"cpu": "1000", "memory": "4000Gi", "pods": "1000"} | (
        {resource: "200"} if resource else {}
    )
    metadata = {"name": name, "labels": {PRODUCT: product} if product else {}}
    spec = {"taints": [TAINT]} if product else {}
    api.request("POST", "/api/v1/nodes", {"metadata": metadata, "spec": spec})
    ready = {"type": "Ready", "status": "True"}
    status = {"status": {"capacity": size, "allocatable": size, "conditions": [ready]}}
    api.request("PATCH", f"/api/v1/nodes/{name}/status", status, "application/merge-patch+json")
    return name


def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def gpu_pod(resource: str = "nvidia.com/gpu", **fields: Any) -> JSON:
    container = {"name": "main", "image": "app", "resources": {"limits": {resource: "1"}}}
    return {
        "metadata": {"generateName": "gpu-", "labels": {"app": "gpu"}},
        "spec": {"containers": [container], **fields},
    }


@pytest.mark.parametrize(
    ("namespace", "resource", "selector", "places"),
    [
        ("default", "nvidia.com/gpu", {}, {"node-a100", "node-h100"}),
        ("default", "nvidia.com/gpu", {PRODUCT: "H100"}, {"node-h100"}),
        ("research", "nvidia.com/gpu", {PRODUCT: "B200"}, {"node-b200"}),
        ("research", "nvidia.com/gpu", {}, {"node-a100", "node-h100", "node-b200"}),
        ("default", "nvidia.com/mig-1g.6gb", {}, {"node-a30"}),
    ],
    ids=["two pools", "a pool by label", "a tenant by label", "a tenant", "MIG"],
)
def test_a_gpu_pod_runs_on_a_node_of_its_pools(
    cluster: ControlPlane, namespace: str, resource: str, selector: JSON, places: set[str]
) -> None:
    api = cluster.api
    pod = gpu_pod(resource, **({"nodeSelector": selector} if selector else {}))
    created = api.request("POST", pods(namespace), pod)
    path = f"{pods(namespace)}/{created['metadata']['name']}"
    until(lambda: api.request("GET", path)["spec"].get("nodeName"), "the Pod to be scheduled")
    assert_complete(api.request("GET", path), namespace, places)
    api.request("DELETE", f"{path}?gracePeriodSeconds=0")


def assert_complete(pod: JSON, namespace: str, places: set[str]) -> None:
    assert pod["spec"]["nodeName"] in places
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    known = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    decision = validate({**pod, "spec": known}, policy_of(SPEC), Request(namespace=namespace))
    assert [f for f in decision.findings if f.action == "enforce"] == []


WORKLOADS: dict[str, tuple[str, JSON, int]] = {
    "Deployment": (
        "apps/v1",
        {"replicas": 2, "selector": {"matchLabels": {"app": "gpu"}}},
        2,
    ),
    "Job": ("batch/v1", {"parallelism": 100, "completions": 100}, 100),
}
"""By kind: its API version, the fields of its spec, and how many Pods it has."""


@pytest.mark.parametrize("kind", WORKLOADS)
def test_the_pods_of_a_workload_are_created_and_run(cluster: ControlPlane, kind: str) -> None:
    version, fields, count = WORKLOADS[kind]
    api, name = cluster.api, f"train-{kind.lower()}"
    template = gpu_pod(restartPolicy="Never" if kind == "Job" else "Always")
    path = f"/apis/{version}/namespaces/default/{kind.lower()}s"
    api.request(
        "POST", path, {"metadata": {"name": name}, "spec": {**fields, "template": template}}
    )

    def running() -> list[JSON]:
        found = api.request("GET", pods("default"))["items"]
        own = [each for each in found if each["metadata"]["name"].startswith(name)]
        return own if sum("nodeName" in each["spec"] for each in own) == count else []

    until(running, f"{count} Pods to be scheduled", within=90)
    for each in running():
        assert_complete(each, "default", {"node-a100", "node-h100"})
    print(Counter(each["spec"]["nodeName"] for each in running()))
    api.request("DELETE", f"{path}/{name}?propagationPolicy=Background")


def test_what_the_api_server_does_not_decide_is_rejected(cluster: ControlPlane) -> None:
    api = cluster.api
    privileged = gpu_pod()
    privileged["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    in_user_namespace = gpu_pod(hostUsers=False)
    in_user_namespace["spec"]["containers"] = privileged["spec"]["containers"]
    trespasser = {
        "metadata": {"generateName": "web-"},
        "spec": {
            "containers": [{"name": "web", "image": "app"}],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        },
    }
    said = {
        name: api.refusal(pods("default"), pod)
        for name, pod in {
            "privileged": privileged,
            "privileged in a user namespace": in_user_namespace,
            "root": gpu_pod(securityContext={"runAsUser": 0}),
            "bound": gpu_pod(nodeName="node-a100"),
            "claim": gpu_pod(resourceClaims=[{"name": "x", "resourceClaimTemplateName": "x"}]),
            "trespasser": trespasser,
        }.items()
    }
    for name, message in said.items():
        print(f"{name}: {message}")
    assert "failed calling webhook" in said["bound"]
    assert "failed calling webhook" in said["claim"]
    assert 'unrestricted-gpu-pod: spec: container "main" sets' in said["privileged"]
    assert 'container "main" sets' in said["privileged in a user namespace"]
    assert "unrestricted-gpu-pod: spec: the Pod sets securityContext.runAsUser: 0" in said["root"]
    assert "pool-trespass" in said["trespasser"]
