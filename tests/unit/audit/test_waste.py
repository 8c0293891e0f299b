"""Device-hours that a cluster wastes. Every sum is computed by hand, next to what is planted.

Nodes have 8 devices, 16 CPUs and 64Gi each.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from audit.fleet import pod_spec
from audit.simulated import Cluster, Object, owned, pod, workload
from specs import default_spec, policy_of
from webhook.tools.audit.waste import Row, Use, Window, waste

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = Window((NOW - timedelta(hours=24)).timestamp(), NOW.timestamp())
READY = {"status": "True"}
PRICE = 2.0


def ago(hours: float) -> str:
    return (NOW - timedelta(hours=hours)).isoformat().replace("+00:00", "Z")


def spec(devices: int, cpu: str = "", memory: str = "") -> Object:
    made = pod_spec(devices)
    requests = {name: text for name, text in (("cpu", cpu), ("memory", memory)) if text}
    made["containers"][0]["resources"]["requests"] = requests
    return made


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def add(
    cluster: Cluster,
    name: str,
    made: Object,
    node_name: str = "",
    *,
    hours: float,
    waited: float = 0,
    unready: float | None = None,
    restarts: int = 0,
    namespace: str = "ml",
) -> None:
    """Add a Pod that was scheduled ``hours`` ago, after it had ``waited``."""
    obj = pod(name, made, node=node_name, namespace=namespace)
    obj["metadata"]["creationTimestamp"] = ago(hours + waited)
    ready = {"status": "False", "lastTransitionTime": ago(unready)} if unready else READY
    conditions: list[dict[str, Any]] = [
        {"type": "Ready", "lastTransitionTime": ago(hours), **ready}
    ]
    if node_name:
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(hours)}
        conditions.append(scheduled)
    obj["status"] = {"phase": "Running", "conditions": conditions}
    if restarts:
        waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
        obj["status"]["containerStatuses"] = [
            {"name": "main", "restartCount": restarts, "state": waiting}
        ]
    cluster.add("Pod", obj)


async def table(
    cluster: Cluster, use: dict[tuple[str, str], Use] | None = None, price: float | None = PRICE
) -> dict[tuple[str, str], Row]:
    """Return the rows by namespace and kind."""
    spec = default_spec()
    spec["pools"][0]["pricePerDeviceHour"] = price
    audited = await cluster.audit(policy_of(spec))
    rows = waste(audited.pools, DAY, use or {})
    assert rows == sorted(rows, key=lambda row: row.kind in ("held", "pending"))
    return {(row.namespace, row.kind): row for row in rows}


async def test_each_planted_kind_of_waste_is_found_on_200_nodes(cluster: Cluster) -> None:
    names = [f"gpu-{number}" for number in range(200)]
    cluster.add_gpu_nodes(*names)
    nodes = iter(names)
    for number in range(150):
        add(cluster, f"train-{number}", spec(8, "12"), next(nodes), hours=48)
    for number in range(10):
        add(cluster, f"pull-{number}", spec(8, "12"), next(nodes), hours=7, waited=1, unready=6)
    for number in range(5):
        add(
            cluster,
            f"crash-{number}",
            spec(4, "6"),
            next(nodes),
            hours=10,
            unready=0.05,
            restarts=120,
        )
    add(cluster, "old", spec(2, "3"), next(nodes), hours=48, unready=0.5, restarts=6)
    for number in range(20):
        add(cluster, f"hog-{number}", spec(1, "15"), next(nodes), hours=12, namespace="notebooks")
    for number in range(10):
        add(cluster, f"web-{number}", spec(0, "16"), next(nodes), hours=3, namespace="web")
    for number in range(3):
        add(cluster, f"waits-{number}", spec(8, "12"), hours=2)
    # Devices that are not idle have worked.
    use = {("ml", f"train-{n}"): Use(worked=1e9) for n in range(150)}
    use |= {("ml", "train-0"): Use(idle=160, worked=1e9), ("ml", "train-1"): Use(idle=1e9)}
    for name in (*(f"pull-{n}" for n in range(10)), *(f"crash-{n}" for n in range(5)), "old"):
        use["ml", name] = Use(worked=1e9)
    use |= {("notebooks", f"hog-{n}"): Use(worked=1e9) for n in range(20)}
    found = await table(cluster, use)

    assert {key: row.devices for key, row in found.items()} == {
        ("ml", "held"): 150 * 8 + 10 * 8 + 5 * 4 + 2,
        ("ml", "pending"): 3 * 8,
        ("ml", "notReady"): 10 * 8 + 5 * 4 + 2,
        ("ml", "idle"): 2 * 8,
        ("notebooks", "held"): 20,
        ("notebooks", "stranded"): 20 * 7,
        ("web", "stranded"): 10 * 8,
    }
    assert {key: row.hours for key, row in found.items()} == pytest.approx(
        {
            ("ml", "held"): 150 * 8 * 24 + 10 * 8 * 7 + 5 * 4 * 10 + 2 * 24,
            ("ml", "pending"): 3 * 8 * 2 + 10 * 8 * 1,
            # A crash loop is as old as its Pod if its restarts show it; that of "old" is not.
            ("ml", "notReady"): 10 * 8 * 6 + 5 * 4 * 10 + 2 * 0.5,
            # No Pod is idle for longer than it holds its devices.
            ("ml", "idle"): 160 + 8 * 24,
            ("notebooks", "held"): 20 * 12,
            ("notebooks", "stranded"): 20 * 7 * 12,
            ("web", "stranded"): 10 * 8 * 3,
        }
    )
    assert [(row.kind, row.cost) for row in found.values()][:4] == [
        ("stranded", 1680 * PRICE),
        ("notReady", pytest.approx(681 * PRICE)),
        ("idle", pytest.approx(352 * PRICE)),
        ("stranded", 240 * PRICE),
    ]
    assert found["ml", "pending"].cost is None
    assert len(found["ml", "held"].pods) == 10
    assert found["ml", "idle"].pods == ("train-1", "train-0")


async def test_without_a_price_waste_is_sorted_by_hours_and_has_no_cost(cluster: Cluster) -> None:
    cluster.add_gpu_nodes("a", "b")
    add(cluster, "large", spec(8), "a", hours=2, unready=1, namespace="one")
    add(cluster, "small", spec(1), "b", hours=20, unready=20, namespace="two")
    found = await table(cluster, price=None)
    assert list(found)[:2] == [("two", "notReady"), ("one", "notReady")]
    assert {row.cost for row in found.values()} == {None}


async def test_a_pod_that_no_kubelet_has_reported_is_not_ready(cluster: Cluster) -> None:
    cluster.add_gpu_nodes("a")
    obj = pod("new", spec(2), node="a", namespace="ml")
    obj["metadata"]["creationTimestamp"] = ago(3)
    cluster.add("Pod", obj | {"status": {"phase": "Pending"}})
    found = await table(cluster)
    assert found["ml", "notReady"].hours == pytest.approx(2 * 3)


@pytest.mark.parametrize(
    ("pods", "stranded"),
    [
        pytest.param([("1", "")], 0, id="room for all"),
        pytest.param([("9", "")], 4, id="7 CPUs left: the share of a device is 2, so 3 fit"),
        pytest.param([("", "60Gi")], 7, id="memory"),
        pytest.param([("", ""), ("", ""), ("16", "")], 5, id="no CPU left, and few request it"),
        pytest.param([("1", ""), ("1", ""), ("10", "")], 1, id="4 CPUs left, of 1 each"),
    ],
)
async def test_free_devices_are_stranded_where_a_typical_pod_does_not_fit(
    cluster: Cluster, pods: list[tuple[str, str]], stranded: int
) -> None:
    cluster.add_gpu_nodes("a")
    for number, (cpu, memory) in enumerate(pods):
        add(cluster, f"p-{number}", spec(1, cpu, memory), "a", hours=4)
    found = await table(cluster)
    row = found.get(("ml", "stranded"))
    assert (row.devices if row else 0) == stranded
    if row:
        assert row.hours == pytest.approx(4 * stranded)
        assert row.pods == (f"p-{len(pods) - 1}",)


async def test_node_agents_take_no_share_of_a_device(cluster: Cluster) -> None:
    cluster.add_gpu_nodes("a")
    agent = cluster.add("DaemonSet", workload("agent", spec(0, "4"), namespace="ml"))
    its = pod("agent-1", spec(0, "4"), app="agent", node="a", namespace="ml")
    cluster.add("Pod", owned(its, agent, "DaemonSet"))
    add(cluster, "train", spec(1, "3"), "a", hours=5)
    found = await table(cluster)
    # 9 of 16 CPUs are left, and a device needs an eighth of 12: 6 of 7 fit.
    assert found["ml", "stranded"].devices == 1


async def test_the_imex_channel_of_a_node_strands_its_other_devices(cluster: Cluster) -> None:
    cluster.serve("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims")
    cluster.serve("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates")
    cluster.add_gpu_nodes("a", "b")
    exactly = {"deviceClassName": "compute-domain-default-channel.nvidia.com"}
    requests = {"devices": {"requests": [{"name": "channel", "exactly": exactly}]}}
    metadata = {"name": "channel", "namespace": "ml"}
    cluster.add("ResourceClaimTemplate", {"metadata": metadata, "spec": {"spec": requests}})
    for devices, name in ((2, "a"), (8, "b")):
        holder = spec(devices, "1")
        holder["containers"][0]["resources"]["claims"] = [{"name": "imex"}]
        holder["resourceClaims"] = [{"name": "imex", "resourceClaimTemplateName": "channel"}]
        add(cluster, f"train-{name}", holder, name, hours=4)
    row = (await table(cluster))["ml", "stranded"]
    assert (row.devices, row.pods, row.nodes) == (6, ("train-a",), ("a",))
    assert row.hours == pytest.approx(4 * 6)
