"""Which devices are counted: what Pods and claims hold or wait for, and what nodes offer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clusters import FAST, Clock, gpu_node, node, policy
from fake_apiserver import NODES, FakeApiServer, eventually
from policies.document import parse_policy
from policies.policy import Policy
from reviewing import default_document
from webhook.kube.client import KubeApi
from webhook.kube.credentials import kubeconfig
from webhook.kube.nodes import NodeObject, Offer, node_from, offers_of
from webhook.kube.reflector import Watches
from webhook.serve.cluster.device_inventory import (
    KEEP_SECONDS,
    ClaimObject,
    CountedPod,
    DeviceInventory,
    Holding,
    Tally,
    of_claim,
    of_pod,
)
from webhook.serve.cluster.facts import ClusterFacts
from webhook.serve.metrics.cluster import MOST_NAMESPACES, OTHER_NAMESPACES, DeviceMetrics

JSON = dict[str, Any]

PODS = "/api/v1/pods"
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-1g.10gb"
CLASS = "gpu.nvidia.com"


def container(limits: JSON | None = None, **more: Any) -> JSON:
    return {"name": "c", "image": "i", "env": [{"name": "A", "value": "b"}]} | {
        "resources": {"limits": limits or {}, "requests": {"cpu": "1", **(limits or {})}},
        **more,
    }


def pod(
    name: str, *containers: JSON, namespace: str = "ml", bound: bool = True, **spec: Any
) -> JSON:
    where = {"nodeName": "gpu-1"} if bound else {}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": list(containers), **where, **spec},
        "status": {"phase": "Running" if bound else "Pending"},
    }


def gpu_pod(name: str, count: int = 1, **more: Any) -> JSON:
    return pod(name, container({GPU: str(count)}), **more)


def claim(name: str, *requests: JSON, allocated: tuple[str, ...] = (), **metadata: Any) -> JSON:
    obj: JSON = {
        "metadata": {"name": name, "namespace": "dra", **metadata},
        "spec": {"devices": {"requests": list(requests)}},
    }
    if allocated:
        results = [{"request": request, "device": "gpu-0"} for request in allocated]
        obj["status"] = {"allocation": {"devices": {"results": results}}}
    return obj


def exactly(name: str, device_class: str = CLASS, **more: Any) -> JSON:
    return {"name": name, "exactly": {"deviceClassName": device_class, **more}}


def counted(obj: JSON) -> dict[Holding, int]:
    return dict(of_pod(msgspec.convert(obj, CountedPod), policy()))


def claimed(obj: JSON) -> dict[Holding, int]:
    return dict(of_claim(msgspec.convert(obj, ClaimObject), policy()))


def offered(obj: JSON, by: Policy | None = None) -> Counter[Offer]:
    pools = by or policy()
    return offers_of([node_from(msgspec.convert(obj, NodeObject), pools)], pools)


# What is counted of one object.


def test_a_pod_counts_the_peak_device_request_of_its_containers() -> None:
    obj = pod(
        "p",
        container({GPU: "2", MIG: 3}),
        container({GPU: "1", "example.com/nic": "4"}),
        initContainers=[
            container({GPU: "1"}, restartPolicy="Always"),
            container({GPU: "6"}),
        ],
    )
    assert counted(obj) == {Holding(GPU, "ml", True): 7, Holding(MIG, "ml", True): 3}


def test_devices_of_an_unscheduled_pod_are_counted_as_pending() -> None:
    assert counted(gpu_pod("p", 2, bound=False)) == {Holding(GPU, "ml", False): 2}


@pytest.mark.parametrize(
    "limits", [{}, {GPU: "0"}, {"example.com/nic": "1"}, {"hugepages-2Mi": "1Gi"}], ids=str
)
def test_a_pod_without_a_pool_device_is_not_counted(limits: JSON) -> None:
    assert counted(pod("p", container(limits))) == {}


def test_a_device_class_requested_as_a_resource_is_counted_with_the_pod() -> None:
    name = f"deviceclass.resource.kubernetes.io/{CLASS}"
    assert counted(pod("p", container({name: "2"}))) == {Holding(name, "ml", True): 2}


def test_a_claim_counts_requests_as_pending_and_allocations_as_held() -> None:
    requests = (exactly("a", count=2), exactly("b", "mig.nvidia.com"), exactly("c", "nic.example"))
    assert claimed(claim("c", *requests)) == {
        Holding(CLASS, "dra", False): 2,
        Holding("mig.nvidia.com", "dra", False): 1,
    }
    assert claimed(claim("c", *requests, allocated=("a", "a", "b", "c"))) == {
        Holding(CLASS, "dra", True): 2,
        Holding("mig.nvidia.com", "dra", True): 1,
    }


def test_a_request_without_a_fixed_count_is_counted_after_allocation() -> None:
    alternatives = [
        {"name": "large", "deviceClassName": CLASS},
        {"name": "small", "deviceClassName": "mig.nvidia.com", "count": 2},
    ]
    either = {"name": "either", "firstAvailable": alternatives}
    every = exactly("every", allocationMode="All")
    assert claimed(claim("c", either, every)) == {}
    allocated = ("either/small", "either/small", "every", "every", "every")
    assert claimed(claim("c", either, every, allocated=allocated)) == {
        Holding("mig.nvidia.com", "dra", True): 2,
        Holding(CLASS, "dra", True): 3,
    }


def test_admin_access_and_extended_resource_claims_are_not_counted() -> None:
    admin_access = exactly("watch", adminAccess=True)
    assert (
        claimed(claim("c", admin_access))
        == claimed(claim("c", admin_access, allocated=("watch",)))
        == {}
    )
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert claimed(claim("c", exactly("a"), allocated=("a",), annotations=annotations)) == {}


def test_a_node_offers_only_the_devices_of_pools() -> None:
    obj = node("a", allocatable={GPU: "8", MIG: "0", "example.com/nic": "2"})
    assert offered(obj) == {Offer(GPU, "nvidia"): 8}


def test_a_node_keeps_its_rdma_devices_apart_from_those_of_pools() -> None:
    obj = node("a", allocatable={GPU: "8", "rdma/hca": "2", "example.com/nic": "2"})
    known = node_from(msgspec.convert(obj, NodeObject), policy())
    assert known.allocatable == {GPU: 8, "rdma/hca": 2}
    assert offered(obj) == {Offer(GPU, "nvidia"): 8}


def test_fractional_resources_are_not_counted_as_devices() -> None:
    memory = "volcano.sh/vgpu-memory"
    pools = policy(resources=[GPU, memory], sharedResources=[], fractionalResources=[memory])
    offering = node("a", allocatable={GPU: "8", memory: "81920"})
    assert offered(offering, pools) == {Offer(GPU, "nvidia"): 8}
    both = pod("a", container({GPU: "1", memory: "3000"}))
    assert of_pod(msgspec.convert(both, CountedPod), pools) == {Holding(GPU, "ml", True): 1}


# The sums.


def test_pods_with_one_name_in_two_namespaces_are_counted_separately() -> None:
    tally = Tally[CountedPod](lambda obj: of_pod(obj, policy()))
    for namespace in ("one", "two"):
        tally.put(msgspec.convert(gpu_pod("same", 2, namespace=namespace), CountedPod))
    assert tally.sums == {Holding(GPU, "one", True): 2, Holding(GPU, "two", True): 2}
    tally.remove("one/same")
    assert tally.sums == {Holding(GPU, "two", True): 2}
    assert list(tally.names()) == ["two/same"]


def test_a_changed_pod_is_counted_once_and_a_pod_without_devices_dropped() -> None:
    tally = Tally[CountedPod](lambda obj: of_pod(obj, policy()))
    for obj in (gpu_pod("p", 2, bound=False), gpu_pod("p", 2), gpu_pod("p", 2)):
        tally.put(msgspec.convert(obj, CountedPod))
    assert tally.sums == {Holding(GPU, "ml", True): 2}
    tally.put(msgspec.convert(pod("p", container()), CountedPod))
    tally.put(msgspec.convert(pod("plain", container()), CountedPod))
    assert not tally.sums
    assert len(tally) == 0


# The watches.


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    """A cluster with a GPU node, GPU Pods over two pages, Pods without GPUs, and a claim."""
    api = FakeApiServer(NODES, PODS, CLAIMS)
    api.put(NODES, gpu_node("gpu-1"))
    api.put(NODES, node("plain-1"))
    for number in range(4):
        api.put(PODS, gpu_pod(f"gpu-{number}"))
        api.put(PODS, pod(f"plain-{number}", container()))
    api.put(PODS, gpu_pod("waits", 8, namespace="lab", bound=False))
    api.put(CLAIMS, claim("c", exactly("a"), allocated=("a",)))
    await api.start()
    yield api
    await api.stop()


@asynccontextmanager
async def inventory_of(api: FakeApiServer, directory: Path) -> AsyncIterator[DeviceInventory]:
    inventory = DeviceInventory(
        Watches(KubeApi(kubeconfig(api.kubeconfig(directory / "kubeconfig"))), timing=FAST),
        policy(),
    )
    await inventory.follow(True)
    try:
        yield inventory
    finally:
        await inventory.stop()


EVERYTHING = {
    Holding(GPU, "ml", True): 4,
    Holding(GPU, "lab", False): 8,
    Holding(CLASS, "dra", True): 1,
}


async def wait_for_holdings(inventory: DeviceInventory, wanted: dict[Holding, int]) -> None:
    await eventually(lambda: dict(inventory.holdings()) == wanted, f"{wanted}")


async def test_only_objects_with_devices_are_kept_and_counted(
    api: FakeApiServer, tmp_path: Path
) -> None:
    async with inventory_of(api, tmp_path) as inventory:
        await wait_for_holdings(inventory, EVERYTHING)
        await eventually(lambda: inventory.allocatable() == {Offer(GPU, "nvidia"): 8}, "the node")
        assert inventory.watches.objects() == {"pods": 5, "resourceclaims": 1, "nodes": 2}
        assert set(inventory.watches.staleness()) == {"pods", "resourceclaims", "nodes"}
        unfinished = "status.phase!=Succeeded,status.phase!=Failed"
        assert {asked.query["fieldSelector"] for asked in api.lists(PODS)} == {unfinished}
        await eventually(lambda: api.watching(PODS), "a watch")
        assert api.watches(PODS)[0].query["fieldSelector"] == unfinished
        assert "fieldSelector" not in api.lists(NODES)[0].query


async def test_a_replica_with_cluster_facts_watches_nodes_once(
    api: FakeApiServer, tmp_path: Path
) -> None:
    load = kubeconfig(api.kubeconfig(tmp_path / "kubeconfig"))
    facts = ClusterFacts(Watches(KubeApi(load), timing=FAST), policy())
    inventory = DeviceInventory(Watches(KubeApi(load), timing=FAST), policy(), facts)
    await inventory.follow(True)
    assert inventory.allocatable() == {}, "the nodes are not listed"
    await facts.start()
    await eventually(lambda: inventory.allocatable() == {Offer(GPU, "nvidia"): 8}, "the node")
    await eventually(lambda: api.watching(NODES), "a watch")
    assert len(api.lists(NODES)) == 1
    api.put(NODES, node("gpu-0", {}, [], {GPU: "8"}))
    await eventually(lambda: [*inventory.without_labels().values()] == [1], "a node without labels")
    api.remove(NODES, "gpu-0")
    api.put(NODES, gpu_node("gpu-2"))
    await eventually(lambda: inventory.allocatable() == {Offer(GPU, "nvidia"): 16}, "two nodes")
    renamed = policy(name="renamed")
    facts.use(renamed)
    inventory.use(renamed)
    assert inventory.allocatable() == {Offer(GPU, "renamed"): 16}
    api.remove(NODES, "gpu-1")
    await eventually(lambda: inventory.allocatable() == {Offer(GPU, "renamed"): 8}, "one node")
    assert api.watching(NODES) == 1
    await inventory.stop()
    await facts.stop()


async def test_no_devices_are_reported_before_the_list_is_complete(
    api: FakeApiServer, tmp_path: Path
) -> None:
    api.blocked[CLAIMS] = asyncio.Event()
    async with inventory_of(api, tmp_path) as inventory:
        await eventually(lambda: api.watching(PODS), "the Pods")
        assert dict(inventory.holdings()) == {}
        api.blocked[CLAIMS].set()
        await wait_for_holdings(inventory, EVERYTHING)


async def test_bound_and_deleted_pods_change_the_totals(api: FakeApiServer, tmp_path: Path) -> None:
    async with inventory_of(api, tmp_path) as inventory:
        await wait_for_holdings(inventory, EVERYTHING)
        await eventually(lambda: api.watching(PODS), "a watch")
        api.put(PODS, gpu_pod("waits", 8, namespace="lab"))
        held = EVERYTHING | {Holding(GPU, "lab", True): 8}
        del held[Holding(GPU, "lab", False)]
        await wait_for_holdings(inventory, held)
        # A Pod that ends is deleted from what the field selector selects.
        for name in ("waits", "gpu-0"):
            api.remove(PODS, name)
        await wait_for_holdings(
            inventory, {Holding(GPU, "ml", True): 3, Holding(CLASS, "dra", True): 1}
        )


async def test_a_cluster_without_dynamic_resource_allocation_has_no_claims(tmp_path: Path) -> None:
    api = FakeApiServer(NODES, PODS)
    api.put(PODS, gpu_pod("p"))
    await api.start()
    async with inventory_of(api, tmp_path) as inventory:
        await wait_for_holdings(inventory, {Holding(GPU, "ml", True): 1})
    await api.stop()


async def test_a_policy_with_other_pools_causes_a_relist(
    api: FakeApiServer, tmp_path: Path
) -> None:
    api.put(PODS, pod("nic", container({"example.com/nic": "3"})))
    async with inventory_of(api, tmp_path) as inventory:
        await wait_for_holdings(inventory, EVERYTHING)
        lists = len(api.lists(PODS))
        inventory.use(policy())
        assert len(api.lists(PODS)) == lists, "the same pools"
        inventory.use(policy(resources=["example.com/nic"], sharedResources=[], deviceClasses=[]))
        await wait_for_holdings(inventory, {Holding("example.com/nic", "ml", True): 3})


async def test_a_stopped_inventory_is_empty_and_can_restart(
    api: FakeApiServer, tmp_path: Path
) -> None:
    async with inventory_of(api, tmp_path) as inventory:
        await wait_for_holdings(inventory, EVERYTHING)
        await inventory.stop()
        assert dict(inventory.holdings()) == {}
        assert inventory.watches.objects() == {}
        assert not inventory.allocatable()
        await eventually(lambda: not api.watching(PODS), "the watch to end")
        await inventory.follow(True)
        await wait_for_holdings(inventory, EVERYTHING)


async def test_a_replica_that_soon_leads_again_does_not_relist(
    api: FakeApiServer, tmp_path: Path
) -> None:
    clock = Clock()
    connection = KubeApi(kubeconfig(api.kubeconfig(tmp_path / "kubeconfig")))
    inventory = DeviceInventory(Watches(connection, clock=clock, timing=FAST), policy())
    await inventory.follow(True)
    await wait_for_holdings(inventory, EVERYTHING)
    pages = len(api.lists(PODS))
    clock.now += 10
    await inventory.follow(False)
    assert dict(inventory.holdings()) == {}
    clock.now += 10
    await inventory.follow(True)
    assert dict(inventory.holdings()) == EVERYTHING
    assert len(api.lists(PODS)) == pages
    clock.now += KEEP_SECONDS + 1
    await inventory.follow(False)
    await eventually(lambda: not api.watching(PODS), "the watch to end")
    await inventory.stop()


# The metrics.


class Known:
    """An inventory with given content."""

    def __init__(self, held: dict[Holding, int], offered: Mapping[Offer, int]) -> None:
        self.policy = policy(
            resources=[GPU, "nvidia.com/mig-*"], sharedResources=[], deviceClasses=[CLASS]
        )
        self._held = held
        self._offered = offered

    def holdings(self) -> list[tuple[Holding, int]]:
        return list(self._held.items())

    def allocatable(self) -> Mapping[Offer, int]:
        return self._offered

    def without_labels(self) -> Mapping[str, int]:
        return {}

    def samples(self) -> dict[tuple[str, ...], float]:
        """Return the samples by metric and the values of its labels."""
        return {
            (family.name, *sample.labels.values()): sample.value
            for family in DeviceMetrics(self).collect()  # type: ignore[arg-type]
            for sample in family.samples
        }


REQUESTED = "gpufence_pool_devices_requested"
ALLOCATABLE = "gpufence_pool_devices_allocatable"


def test_metrics_have_labels_for_pool_resource_namespace_and_scheduled() -> None:
    known = Known(
        {Holding(GPU, "ml", True): 4, Holding(GPU, "ml", False): 2, Holding(CLASS, "dra", True): 1},
        {Offer(GPU, "nvidia"): 8},
    )
    assert known.samples() == {
        (ALLOCATABLE, "nvidia", GPU): 8,
        (REQUESTED, "nvidia", GPU, "ml", "true"): 4,
        (REQUESTED, "nvidia", GPU, "ml", "false"): 2,
        (REQUESTED, "nvidia", CLASS, "dra", "true"): 1,
    }


def test_the_node_determines_the_pool_of_a_resource_in_several_pools() -> None:
    models = two_models()
    nodes = [
        node("a", labels={"model": "a100"}, allocatable={GPU: "8"}),
        node("b", labels={"model": "h100"}, allocatable={GPU: "4"}),
        node("unlabeled", taints=[{"key": "h100", "effect": "NoSchedule"}], allocatable={GPU: "1"}),
    ]
    offers = Counter[Offer]()
    for node_object in nodes:
        offers += offered(node_object, models)
    held = Counter[Holding]()
    for name, count in (("a", 5), ("b", 3), ("unlabeled", 1), ("", 2)):
        obj = gpu_pod(f"on-{name}", count, bound=False)
        obj["spec"]["nodeName"] = name
        held += of_pod(msgspec.convert(obj, CountedPod), models)
    known = Known(held, offers)
    known.policy = models
    assert known.samples() == {
        (ALLOCATABLE, "a100", GPU): 8,
        (ALLOCATABLE, "h100", GPU): 5,
        (REQUESTED, "a100", GPU, "ml", "true"): 5,
        (REQUESTED, "h100", GPU, "ml", "true"): 4,
        (REQUESTED, "a100,h100", GPU, "ml", "false"): 2,
    }


def two_models() -> Policy:
    """Return a policy with two pools of one resource."""
    document = default_document()
    document["pools"] = [
        {
            "name": name,
            "resources": [GPU],
            "taints": [{"key": name}],
            "nodeSelector": {"model": name},
        }
        for name in ("a100", "h100")
    ]
    return parse_policy(document)


def test_resources_that_no_node_offers_are_exported_as_the_policy_pattern() -> None:
    made_up = {Holding(f"nvidia.com/mig-{number}", "ml", False): 1 for number in range(50)}
    assert Known({**made_up, Holding(MIG, "ml", True): 2}, {Offer(MIG, "nvidia"): 7}).samples() == {
        (ALLOCATABLE, "nvidia", MIG): 7,
        (REQUESTED, "nvidia", MIG, "ml", "true"): 2,
        (REQUESTED, "nvidia", "nvidia.com/mig-*", "ml", "false"): 50,
    }


def test_namespaces_with_the_fewest_devices_are_exported_as_one_series() -> None:
    held = {Holding(GPU, f"n{number:04}", True): number for number in range(1, 1001)}
    samples = Known(held, {}).samples()
    assert len(samples) == MOST_NAMESPACES + 1
    assert samples[REQUESTED, "nvidia", GPU, "n0801", "true"] == 801
    assert samples[REQUESTED, "nvidia", GPU, OTHER_NAMESPACES, "true"] == sum(range(1, 801))
    assert sum(samples.values()) == sum(range(1, 1001))
