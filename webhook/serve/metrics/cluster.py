"""Metrics of the cluster: how recent the facts are, and the devices that nodes offer and Pods hold.

Labels have few values, whatever Pods request.
"""

from __future__ import annotations

import time
from collections import Counter as Count
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import get_args

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from policies.policy import Policy, Pool
from webhook.kube.nodes import Offer
from webhook.kube.reflector import Watches
from webhook.serve.cluster.claims import LookupResult
from webhook.serve.cluster.device_inventory import DeviceInventory, Holding, pools_of

MOST_NAMESPACES = 200
"""Further namespaces, those with the fewest devices, are summed up as one."""

OTHER_NAMESPACES = "(others)"
"""Not a valid namespace name."""


class ClusterMetrics:
    """Counters of the watches, in the registry of the server.

    The label ``resource`` is what the API calls a collection: nodes, namespaces, deviceclasses ...
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._restarts = Counter(
            "gpufence_cluster_watch_restarts",
            "Lists and watches of the cluster that failed, and started again.",
            ("resource",),
            registry=registry,
        )
        self._lookups = Counter(
            "gpufence_claim_lookups",
            "Lookups of resource claims, by result: missing, failed and late are unresolved.",
            ("result",),
            registry=registry,
        )
        for result in get_args(LookupResult):
            self._lookups.labels(result)

    def watch_restarted(self, resource: str) -> None:
        self._restarts.labels(resource).inc()

    def claim_looked_up(self, result: LookupResult) -> None:
        self._lookups.labels(result).inc()

    def track(self, *watches: Watches) -> None:
        """Export the size and age of each collection."""
        for watched in watches:
            for resource in watched.objects():
                self._restarts.labels(resource)
        self._registry.register(_Known(watches))


class _Known(Collector):
    def __init__(self, watches: Sequence[Watches]) -> None:
        self._watches = watches

    def collect(self) -> Iterator[GaugeMetricFamily]:
        known = {name: n for watched in self._watches for name, n in watched.objects().items()}
        yield _gauge(
            "gpufence_cluster_objects",
            "Number of objects in the last known state of the cluster.",
            ("resource",),
            {(resource,): count for resource, count in known.items()},
        )
        ages = {name: age for each in self._watches for name, age in each.staleness().items()}
        now = time.time()
        yield _gauge(
            "gpufence_cluster_last_event_timestamp_seconds",
            "Unix time of the last watch event or bookmark from the API server.",
            ("resource",),
            {(resource,): now - age for resource, age in ages.items() if age is not None},
        )


class DeviceMetrics(Collector):
    """Exports the sums of the inventory.

    The namespace is ``pod_namespace``: Prometheus gives a series the ``namespace`` of the Pod that
    it was scraped from.
    """

    def __init__(self, inventory: DeviceInventory) -> None:
        self._inventory = inventory

    def collect(self) -> Iterator[GaugeMetricFamily]:
        policy, offered = self._inventory.policy, self._inventory.allocatable()
        by_pool: Count[tuple[str, ...]] = Count()
        for (resource, pool, _), count in offered.items():
            by_pool[pool, resource] += count
        yield _gauge(
            "gpufence_pool_devices_allocatable",
            "Devices of a pool that nodes offer.",
            ("pool", "resource"),
            by_pool,
        )
        yield _gauge(
            "gpufence_pool_nodes_without_labels",
            "Nodes that offer devices of a pool and have the labels of no pool.",
            ("pool",),
            {(pool,): count for pool, count in self._inventory.without_labels().items()},
        )
        yield _gauge(
            "gpufence_pool_devices_requested",
            "Devices that Pods hold (scheduled) or wait for, by resource or device class.",
            ("pool", "resource", "pod_namespace", "scheduled"),
            _requested(self._inventory.holdings(), policy, offered),
        )


def _gauge(
    name: str, text: str, labels: Sequence[str], values: Mapping[tuple[str, ...], float]
) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        gauge.add_metric(key, value)
    return gauge


def _requested(
    holdings: Iterable[tuple[Holding, int]], policy: Policy, offered: Iterable[Offer]
) -> Count[tuple[str, ...]]:
    """Return devices by pool, resource, namespace and whether they are held."""
    held = list(holdings)
    shown = _largest(held)
    resources = {offer.resource for offer in offered}
    pool_of = {(offer.resource, offer.node): offer.pool for offer in offered if offer.node}
    found: Count[tuple[str, ...]] = Count()
    for (device, namespace, scheduled, node), count in held:
        if pools := pools_of(device, policy):
            # Before they have a node, devices belong to any pool that offers them.
            pool = pool_of.get((device, node)) or ",".join(pool.name for pool in pools)
            where = namespace if namespace in shown else OTHER_NAMESPACES
            state = "true" if scheduled else "false"
            found[pool, _label(device, pools, resources), where, state] += count
    return found


def _largest(holdings: Iterable[tuple[Holding, int]]) -> frozenset[str]:
    """Return the namespaces with the most devices, up to the limit."""
    devices: Count[str] = Count()
    for holding, count in holdings:
        devices[holding.namespace] += count
    ranked = sorted(devices, key=lambda name: (-devices[name], name))
    return frozenset(ranked[:MOST_NAMESPACES])


def _label(device: str, pools: Iterable[Pool], offered: Container[str]) -> str:
    """Return the label of the devices; the policy's pattern for names that Pods can invent."""
    if device in offered or any(device in pool.resources.exact for pool in pools):
        return device
    prefixes = (prefix for pool in pools for prefix in pool.resources.prefixes)
    return next((f"{prefix}*" for prefix in prefixes if device.startswith(prefix)), device)
