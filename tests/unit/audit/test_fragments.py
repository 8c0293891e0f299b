"""Free devices in pieces, and what would be free without small Pods."""

from __future__ import annotations

import pytest

from audit.fleet import pod_spec
from audit.simulated import Cluster, pod
from webhook.tools.audit.fragments import pieces, without_small
from webhook.tools.audit.pools import PoolState


async def states(nodes: int, *pods: tuple[str, int, str]) -> list[PoolState]:
    """Return the pools of a cluster: each Pod has a name, a number of devices, and a node."""
    cluster = Cluster()
    cluster.add_gpu_nodes(*(f"n{number}" for number in range(nodes)))
    for name, devices, place in pods:
        cluster.add("Pod", pod(name, pod_spec(devices), node=place))
    return (await cluster.audit()).pools


async def test_free_devices_are_in_pieces_where_they_are_enough_only_together() -> None:
    held = [("a", 6, "n0"), ("b", 4, "n1"), ("c", 5, "n2")]
    waiting = [("fits", 2, ""), ("first", 5, ""), ("second", 8, ""), ("third", 4, "")]
    [found] = pieces(await states(3, *held, *waiting))
    assert found == (
        "pool nvidia: 9 nvidia.com/gpu are free in pieces (nodes x devices): 1 x 4, 1 x 3, 1 x 2. "
        "Together, they would be enough for 1 waiting Pod (web/first)"
    )
    [found] = pieces(await states(3, *held))
    assert found.endswith("enough for no waiting Pod")


@pytest.mark.parametrize(
    "pods", [[("a", 6, "n0")], [("a", 8, "n0"), ("b", 6, "n1"), ("late", 8, "")]]
)
async def test_a_whole_node_or_too_few_free_devices_are_no_pieces(
    pods: list[tuple[str, int, str]],
) -> None:
    assert not [*pieces(await states(2, *pods))]


async def test_without_small_pods_whole_nodes_are_free_and_larger_pods_run() -> None:
    small = [("s0", 1, "n0"), ("s1", 2, "n1"), ("s2", 1, "n2")]
    large = [("l2", 4, "n2"), ("l3", 8, "n3"), ("w0", 8, ""), ("w1", 8, ""), ("w2", 8, "")]
    found = await states(5, *small, *large, ("tiny", 1, ""))
    [what_if] = without_small(found, 4)
    assert what_if.sentence == (
        "pool nvidia with minDevices 4: without 3 Pods (web/s0, web/s1, web/s2), 3 nodes with "
        "nvidia.com/gpu would be free as a whole (1 now), and 2 more waiting Pods would run"
    )
    assert what_if.waiting == ["web/w1", "web/w2"]
    assert not [*without_small(found, 1)]
