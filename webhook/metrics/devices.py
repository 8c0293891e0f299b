"""Metrics of the device inventory: the devices that nodes offer, and those that Pods hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from policies.policy import Policy, Pool
from webhook.cluster.device_inventory import DeviceInventory
from webhook.cluster.holders import Holding, pools_of
from webhook.cluster.nodes import Offer

MOST_NAMESPACES = 200
"""Further namespaces, those with the fewest devices, are summed up as one."""

OTHER_NAMESPACES = "(others)"
"""Not a valid namespace name."""


class DeviceMetrics(Collector):
    """Exports the sums of the inventory. Labels have few values, whatever Pods request.

    The namespace is ``pod_namespace``: Prometheus gives a series the ``namespace`` of the Pod that
    it was scraped from.
    """

    def __init__(self, inventory: DeviceInventory) -> None:
        self._inventory = inventory

    def collect(self) -> Iterator[GaugeMetricFamily]:
        policy, offered = self._inventory.policy, self._inventory.allocatable()
        allocatable = GaugeMetricFamily(
            "gpufence_pool_devices_allocatable",
            "Devices of a pool that nodes offer.",
            labels=("pool", "resource"),
        )
        by_pool: Counter[tuple[str, str]] = Counter()
        for (resource, pool, _), count in offered.items():
            by_pool[pool, resource] += count
        for pool_and_resource, count in by_pool.items():
            allocatable.add_metric(pool_and_resource, count)
        yield allocatable
        requested = GaugeMetricFamily(
            "gpufence_pool_devices_requested",
            "Devices that Pods hold (scheduled) or wait for, by resource or device class.",
            labels=("pool", "resource", "pod_namespace", "scheduled"),
        )
        for labels, count in _requested(self._inventory.holdings(), policy, offered).items():
            requested.add_metric(labels, count)
        yield requested


def _requested(
    holdings: Iterable[tuple[Holding, int]], policy: Policy, offered: Iterable[Offer]
) -> Counter[tuple[str, str, str, str]]:
    """Return devices by pool, resource, namespace and whether they are held."""
    held = list(holdings)
    shown = _largest(held)
    resources = {offer.resource for offer in offered}
    pool_of = {(offer.resource, offer.node): offer.pool for offer in offered if offer.node}
    found: Counter[tuple[str, str, str, str]] = Counter()
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
    devices: Counter[str] = Counter()
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
