"""A discovered policy on a cluster with several GPU models and tenants, with the real scheduler.

`GPUFENCE_PODS` is the number of GPU Pods, and of Pods without a GPU request; the same ones each
time, unless `GPUFENCE_SEED` is another number.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.cluster import ControlPlane
from controlplane.fence import Fence, running
from controlplane.objects import node, taint
from controlplane.placing import place
from running import run_command

pytestmark = [pytest.mark.timeout(1800)]

JSON = dict[str, Any]

COUNT = int(os.environ.get("GPUFENCE_PODS", "60"))
SEED = int(os.environ.get("GPUFENCE_SEED", "20261122"))
ROOM = {"cpu": "10000", "pods": "10000"}
GPU, MIG, AMD, GAUDI = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu", "habana.ai/gaudi"
PRODUCT, ZONE = "nvidia.com/gpu.product", "topology.kubernetes.io/zone"
A100, H100, L4 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-L4-SHARED"
MIXED, WHOLE = {"example.com/partitions": "mixed"}, {"example.com/partitions": "none"}
NVIDIA_TAINT = taint(GPU, "present")
SHARED = {"nvidia.com/gpu.sharing-strategy": "time-slicing"}

Group = tuple[str, JSON, list[dict[str, str]], dict[str, str]]
GROUPS: dict[str, Group] = {
    "a100": (GPU, {PRODUCT: A100}, [NVIDIA_TAINT], {GPU: "10000"}),
    "h100": (GPU, {PRODUCT: H100, **WHOLE}, [taint("model", "h100")], {GPU: "10000"}),
    "mig": (MIG, {PRODUCT: H100, **MIXED}, [NVIDIA_TAINT], {GPU: "0", MIG: "10000"}),
    "l4": (GPU, {PRODUCT: L4, **SHARED}, [NVIDIA_TAINT], {GPU: "10000"}),
    "mi300x": (AMD, {"amd.com/gpu.product-name": "MI300X"}, [taint(AMD)], {AMD: "10000"}),
    "gaudi": (
        GAUDI,
        {"feature.node.kubernetes.io/pci-1da3.present": "true"},
        [taint(GAUDI, "present", "NoExecute")],
        {GAUDI: "10000"},
    ),
}
NODES = [
    node(
        f"{group}-{zone}",
        labels={**labels, ZONE: zone},
        taints=taints,
        resources={**ROOM, **devices},
    )
    for group, (_, labels, taints, devices) in GROUPS.items()
    for zone in ("a", "b")
] + [node(f"plain-{zone}", labels={ZONE: zone}, resources=ROOM) for zone in ("a", "b")]

POOL_OF_GROUP = {
    "a100": "nvidia-a100-sxm4-80gb",
    "h100": "nvidia-h100-80gb-hbm3-none",
    "mig": "nvidia-h100-80gb-hbm3-mixed",
    "l4": "nvidia-l4-shared",
    "mi300x": "mi300x",
    "gaudi": "gaudi",
}
TENANTS = {
    "research": {"a100", "h100", "mig"},
    "vision": {"a100", "l4"},
    "hpc": {"a100", "mi300x", "gaudi"},
    "batch": {"a100"},
}
"""The node groups that the namespaces of a tenant may use. Every namespace may use A100."""


def group_of(place: str) -> str:
    return place.rpartition("-")[0]


class Generator:
    """Makes Pods as authors write them: with some node selection, and some tolerations."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def tenant(self) -> str:
        return self._random.choice(sorted(TENANTS))

    def spec(self, resource: str | None) -> JSON:
        container: JSON = {"name": "main", "image": "registry.example/app"}
        if resource:
            container["resources"] = {"limits": {resource: "1"}}
        spec: JSON = {"containers": [container], "terminationGracePeriodSeconds": 0}
        selection: JSON = {}
        if self._random.random() < 0.3:
            selection[ZONE] = self._random.choice("ab")
        if self._random.random() < (0.3 if resource == GPU else 0.1):
            selection[PRODUCT] = self._random.choice((A100, H100, L4))
        if self._random.random() < 0.4:
            keys = self._random.sample((GPU, "model", AMD, GAUDI, ""), self._random.randint(1, 2))
            spec["tolerations"] = [
                {"operator": "Exists"} | ({"key": key} if key else {}) for key in keys
            ]
        if self._random.random() < 0.2:
            term = {"key": ZONE, "operator": "NotIn", "values": [self._random.choice("ab")]}
            required = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
            spec["affinity"] = {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
            }
        return spec | ({"nodeSelector": selection} if selection else {})

    def resource(self) -> str:
        return self._random.choice((GPU, GPU, GPU, MIG, AMD, GAUDI))


def tenanted(document: JSON, namespaces: dict[str, str]) -> JSON:
    """Return the policy with pools that are reserved for tenants, as an administrator adds them."""
    for pool in document["pools"]:
        [group] = [group for group, name in POOL_OF_GROUP.items() if name == pool["name"]]
        if group != "a100":
            tenants = [tenant for tenant, groups in TENANTS.items() if group in groups]
            pool["allowedNamespaces"] = {"names": [namespaces[tenant] for tenant in tenants]}
    return document


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    with control_plane.nodes(*NODES):
        yield control_plane


@pytest.fixture(scope="module")
def namespaces(cluster: ControlPlane) -> dict[str, str]:
    return {tenant: cluster.create_namespace(f"{tenant}-") for tenant in TENANTS}


@pytest.fixture(scope="module")
def discovered(cluster: ControlPlane) -> str:
    """The policy that the command writes for the cluster."""
    done = run_command("policy", "discover", "--kubeconfig", cluster.kubeconfig)
    assert done.status == 0, done.err
    # The cluster may have Pods of other tests.
    assert not [line for line in done.err.splitlines() if "would deny" not in line]
    return done.out


@pytest.fixture(scope="module")
def fence(
    cluster: ControlPlane,
    namespaces: dict[str, str],
    discovered: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fence]:
    policy = tenanted(yaml.safe_load(discovered), namespaces)
    with running(cluster, tmp_path_factory.mktemp("discovered"), policy) as fence:
        yield fence


def test_the_discovered_policy_is_valid_and_has_all_pools(discovered: str, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(discovered)
    done = run_command("policy", "validate", tmp_path / "policy.yaml")
    print(f"\n{done.out.replace(str(tmp_path), '').strip()}")
    assert (done.status, done.err) == (0, "")
    names = {pool["name"] for pool in yaml.safe_load(discovered)["pools"]}
    assert names == set(POOL_OF_GROUP.values())


def test_gpu_pods_are_scheduled_only_on_nodes_of_their_tenant(
    cluster: ControlPlane, namespaces: dict[str, str], fence: Fence
) -> None:
    make = Generator(SEED)
    tenants = [make.tenant() for _ in range(COUNT)]
    resources = [make.resource() for _ in range(COUNT)]
    specs = [make.spec(resource) for resource in resources]
    pods = [(namespaces[tenant], spec) for tenant, spec in zip(tenants, specs, strict=True)]
    # What authors could get: the same manifests, on every node, with all taints tolerated.
    anywhere = [
        (place_, {**spec, "tolerations": [{"operator": "Exists"}]}) for place_, spec in pods
    ]
    reference = place(cluster, anywhere)
    with fence.registered():
        outcome = place(cluster, pods)
    print(f"\n{COUNT} GPU Pods: {outcome}; without the fence: {reference}")
    for number, where in outcome.bound.items():
        group = group_of(where)
        assert GROUPS[group][0] == resources[number]
        assert group in TENANTS[tenants[number]], (number, where)
    assert {number: specs[number] for number in outcome.pending & reference.bound.keys()} == {}
    for number, message in outcome.denials.items():
        # No node fits, or the tenant may use no node that offers the device with these labels.
        rules = ("pool-not-allowed", "unschedulable-gpu-pod", "pool-trespass")
        assert any(rule in message for rule in rules), message
        if number not in reference.bound:
            continue
        product = specs[number].get("nodeSelector", {}).get(PRODUCT)
        usable = [GROUPS[group] for group in TENANTS[tenants[number]]]
        assert not any(
            resource == resources[number] and product in (None, labels.get(PRODUCT))
            for resource, labels, _, _ in usable
        ), message
    assert len(outcome.bound) > COUNT / 4


def test_no_pod_without_a_request_is_scheduled_on_a_gpu_node(
    cluster: ControlPlane, namespaces: dict[str, str], fence: Fence
) -> None:
    make = Generator(SEED + 1)
    pods = [(namespaces[make.tenant()], make.spec(None)) for _ in range(COUNT)]
    reference = place(cluster, pods)
    with fence.registered():
        outcome = place(cluster, pods)
    print(f"\n{COUNT} Pods without a request: {outcome}; without the fence: {reference}")
    assert set(map(group_of, outcome.bound.values())) == {"plain"}
    assert all("pool-trespass" in message for message in outcome.denials.values())
    # Without the fence, some are on GPU nodes.
    assert set(map(group_of, reference.bound.values())) - {"plain"}
