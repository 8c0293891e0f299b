"""Implements `make overload`: more clients than a replica can serve, and floods of large Pods.

A replica must reject early, respond within the deadline, and recover afterwards. During a flood, an
API server creates GPU Pods: every one must be created.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from controlplane.api import Api
from controlplane.binaries import binaries
from controlplane.cluster import ControlPlane
from controlplane.objects import node, taint
from release.load import Load
from release.release import release
from soak.replica import replica, run, trusting
from soak.run import expected_reviews
from soak.sampling import at
from soak.traffic import Client, Outcomes, saturate, send

SOURCES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
CLIENTS = 300
"""Clients of one address: below its limit. Three addresses exceed the limit of a replica
(`webhook.serve.http.listener`)."""

DEADLINE = 3.0
_SECONDS = 10.0
_FLOOD_SECONDS = 20.0
_NODES = 5000
_TENANT = "tenant"
_ZONE = "topology.kubernetes.io/zone"
_COLUMNS = (
    "load", "requests a second", "responses", "p50, ms", "p99, ms", "longest, ms", "rejected",
    "rejected after, ms",
)  # fmt: skip


async def overload(directory: Path) -> list[tuple[str, float, Outcomes]]:
    """Measure the capacity, half of it, all clients at once, and half of it again."""
    reviews = expected_reviews()
    results = []
    async with replica(directory, ()) as server:
        context = trusting(server)

        def clients_at(sources: Sequence[str], count: int, outcomes: Outcomes) -> list[Client]:
            return [
                Client(server.port, context, outcomes, source)
                for source in sources
                for _ in range(count)
            ]

        async def at_half(name: str, rate: float) -> None:
            outcomes = Outcomes()
            clients = clients_at(SOURCES[:1], 16, outcomes)
            await send(clients, reviews, rate, _SECONDS)
            results.append((name, rate, outcomes))
            await _close(clients)

        outcomes = Outcomes()
        clients = clients_at(SOURCES[:1], 16, outcomes)
        capacity = await saturate(clients, reviews, _SECONDS)
        results.append(("16 clients, each as fast as it can", capacity, outcomes))
        await _close(clients)
        await at_half("half of that, before", capacity / 2)
        for sources in (SOURCES[:2], SOURCES):
            outcomes = Outcomes()
            clients = clients_at(sources, CLIENTS, outcomes)
            rate = await saturate(clients, reviews, _SECONDS)
            results.append((f"{len(clients):,} clients, each as fast as it can", rate, outcomes))
            await _close(clients)
        await at_half("half of that, after", capacity / 2)
    return results


async def _close(clients: Sequence[Client]) -> None:
    for client in clients:
        await client.close()


def floods(directory: Path) -> list[str]:
    """Create GPU Pods during each flood; return the problems."""
    problems = []
    with ControlPlane(directory / "cluster", binaries()) as cluster:
        # Dry runs store nothing: the scheduler has no work, but uses CPU.
        cluster.scheduler.stop()
        _create_nodes(cluster)
        tenant = _tenant(cluster)
        own = directory / "release"
        with release(cluster, own, forks=False) as released, released.replicas(1):
            # Pods with 200 terms are judged, and Pods with more are rejected.
            for clients, terms in ((1, 500), (4, 200), (4, 1000)):
                problems += _flood_of_terms(cluster.api, tenant, clients, terms)
    return problems


def _tenant(cluster: ControlPlane) -> Api:
    """Return the API for a user who may edit one namespace."""
    cluster.create_namespace(_TENANT)
    role = ("--clusterrole=edit", f"--user={_TENANT}", f"--namespace={_TENANT}")
    cluster.kubectl("create", "rolebinding", "edit", *role)
    return replace(cluster.api, user=_TENANT, group="system:authenticated")


def _flood_of_terms(api: Api, tenant: Api, clients: int, terms: int) -> list[str]:
    """Create GPU Pods while clients of a tenant create Pods with many node selector terms."""
    with Load(tenant, _TENANT, threads=clients, every=0, pod=_excluding_zones(terms)) as flood:
        time.sleep(1)
        with Load(api, "default", threads=4, every=0.05) as load:
            time.sleep(_FLOOD_SECONDS)
    latencies, flooded = sorted(load.durations), sorted(flood.durations)
    name = f"{clients} clients, Pods with {terms:,} terms, {_NODES:,} nodes"
    print(
        f"{name}: {load.created} GPU Pods created, {len(load.failures)} failed, longest "
        f"{at(latencies, 1):.0f} ms; {len(flooded)} Pods with terms answered, longest "
        f"{at(flooded, 1):.0f} ms"
    )
    return [f"{name}: {load.failures[:3]}"] if load.failures or not latencies else []


def _create_nodes(cluster: ControlPlane) -> None:
    gpu, device = {"nvidia.com/gpu.present": "true"}, "nvidia.com/gpu"
    nodes = [node(f"node-{n}", labels={_ZONE: f"zone-{n % 3}"}) for n in range(_NODES)]
    nodes.append(node("gpu-1", labels=gpu, taints=[taint(device)], resources={device: "8"}))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: cluster.api.request("POST", "/api/v1/nodes", one), nodes))


def _excluding_zones(terms: int) -> dict[str, Any]:
    """Return a Pod that tolerates every taint, with terms that each exclude all zones."""
    zones = [f"zone-{n}" for n in range(3)]
    excluding = [
        {"matchExpressions": [{"key": _ZONE, "operator": "NotIn", "values": [*zones, f"x{n}"]}]}
        for n in range(terms)
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": excluding}}
    return {
        "metadata": {"generateName": "flood-"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": required},
            "containers": [{"name": "main", "image": "web"}],
        },
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        problems = floods(Path(directory))
    if problems:
        raise SystemExit(f"PROBLEM: {problems}")
    results = run(overload)
    print(f"| {' | '.join(_COLUMNS)} |")
    print(f"| --- |{' ---: |' * (len(_COLUMNS) - 1)}")
    for name, rate, outcomes in results:
        latencies, failures = sorted(outcomes.latencies), sorted(outcomes.failures)
        cells = (
            *(name, f"{rate:.0f}", f"{len(latencies)}"),
            *(f"{at(latencies, share):.1f}" for share in (0.5, 0.99, 1)),
            *(f"{len(failures)}", f"{at(failures, 1):.1f}"),
        )
        print(f"| {' | '.join(cells)} |")
        if outcomes.wrong or at(latencies, 1) > DEADLINE * 1000:
            raise SystemExit(f"PROBLEM: wrong or late: {outcomes.wrong[:3]}")


if __name__ == "__main__":
    main()
