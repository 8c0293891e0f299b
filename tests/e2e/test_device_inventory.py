"""The GPU estate of a real cluster: who holds devices, who waits for them, what nodes offer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from controlplane.cluster import ControlPlane
from controlplane.devices import DRA, SELECTOR, device_class, driver_devices
from controlplane.devices import DRIVER as CLASS
from controlplane.gpufence import Replica
from controlplane.objects import GPU_NODE, node, pod
from controlplane.poll import until
from controlplane.versions import CLAIMS
from release.release import Release, release

GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def kept(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Release]:
    """A release with two replicas that are to count."""
    directory = tmp_path_factory.mktemp("estate")
    with (
        control_plane.nodes(GPU_NODE, node("plain")),
        release(control_plane, directory) as released,
        # The leader is to stay the same, however busy the machine is.
        released.replicas(2, "--device-metrics", "--lease-seconds", "60"),
    ):
        yield released


def leaders(kept: Release) -> list[Replica]:
    return [each for each in kept.service.replicas if each.metric("gpufence_leader")]


def offered(replica: Replica) -> float:
    return replica.metric(f'gpufence_pool_devices_allocatable{{pool="nvidia",resource="{GPU}"}}')


def requested(replica: Replica, namespace: str, resource: str = GPU) -> tuple[float, float]:
    """Return the devices that the namespace's Pods hold, and those that they wait for."""
    holding, waiting = (
        replica.metric(
            f'gpufence_pool_devices_requested{{pod_namespace="{namespace}",pool="nvidia",'
            f'resource="{resource}",scheduled="{scheduled}"}}'
        )
        for scheduled in ("true", "false")
    )
    return holding, waiting


def test_only_the_leader_counts_held_and_pending_devices_of_pods(
    kept: Release, namespace: str
) -> None:
    [leader] = leaders(kept)
    [other] = [each for each in kept.service.replicas if each is not leader]
    pods = f"/api/v1/namespaces/{namespace}/pods"
    api = kept.cluster.api
    until(lambda: offered(leader) == 8, "the node's devices")
    for name, count in (("holds", 6), ("waits", 4)):
        api.request("POST", pods, pod({GPU: count}, name))
    kept.cluster.bound_to(namespace, "holds")
    kept.cluster.unschedulable(namespace, "waits")
    until(lambda: requested(leader, namespace) == (6, 4), "6 held, 4 waited for")
    assert offered(other) == 0
    assert requested(other, namespace) == (0, 0)

    done = {"status": {"phase": "Succeeded"}}
    api.request("PATCH", f"{pods}/holds/status", done, "application/merge-patch+json")
    kept.cluster.bound_to(namespace, "waits")
    until(lambda: requested(leader, namespace) == (4, 0), "the first to have ended")
    api.request("DELETE", f"{pods}/waits?gracePeriodSeconds=0")
    until(lambda: requested(leader, namespace) == (0, 0), "the second to be gone")


@CLAIMS
def test_devices_of_a_claim_are_pending_until_allocation(kept: Release, namespace: str) -> None:
    [leader] = leaders(kept)
    api = kept.cluster.api
    claims = f"{DRA}/namespaces/{namespace}/resourceclaims"
    request = {"name": "gpus", "exactly": {"deviceClassName": CLASS, "count": 2}}
    claim = {"metadata": {"name": "two"}, "spec": {"devices": {"requests": [request]}}}
    api.request("POST", claims, claim)
    until(lambda: requested(leader, namespace, CLASS) == (0, 2), "the claim")

    claiming = pod(name="claims", resourceClaims=[{"name": "gpus", "resourceClaimName": "two"}])
    claiming["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpus"}]}
    with (
        device_class(kept.cluster, selectors=[SELECTOR]),
        driver_devices(kept.cluster, "gpu", count=4),
    ):
        api.request("POST", f"/api/v1/namespaces/{namespace}/pods", claiming)
        kept.cluster.bound_to(namespace, "claims")
        until(lambda: requested(leader, namespace, CLASS) == (2, 0), "2 devices")


def test_the_next_leader_counts_devices_after_the_leader_stops(
    kept: Release, namespace: str
) -> None:
    [leader] = leaders(kept)
    [other] = [each for each in kept.service.replicas if each is not leader]
    path = f"/api/v1/namespaces/{namespace}/pods"
    kept.cluster.api.request("POST", path, pod({GPU: 1}, "stays"))
    kept.cluster.bound_to(namespace, "stays")
    until(lambda: requested(leader, namespace) == (1, 0), "the Pod")
    kept.service.select([other])
    leader.stop()
    until(lambda: requested(other, namespace) == (1, 0), "the Pod, from the other")
    until(lambda: offered(other) == 8, "the node's devices, from the other")


def test_a_leader_follows_pods_of_megabytes_with_little_memory(
    kept: Release, namespace: str
) -> None:
    """The API server sends each ``<`` as six bytes: 1.3 MB become a watch line of 7.8 MB."""
    [leader] = leaders(kept)
    pods, api = f"/api/v1/namespaces/{namespace}/pods", kept.cluster.api
    restarts = 'gpufence_cluster_watch_restarts_total{resource="pods"}'
    before = leader.metric(restarts)
    for number in range(3):
        large = pod({GPU: 1}, f"large-{number}")
        large["spec"]["nodeSelector"] = {"no": "such-node"}
        large["spec"]["containers"][0]["env"] = [{"name": "A", "value": "<" * 1_300_000}]
        api.request("POST", pods, large)
    until(lambda: requested(leader, namespace) == (0, 3), "all Pods to be counted")
    assert leader.metric(restarts) == before
    assert leader.metric("process_resident_memory_bytes") < 150 * 1024 * 1024
