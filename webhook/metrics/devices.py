"""Metrics of the device inventory: the devices that nodes offer, and those that Pods hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from policies.policy import Policy, Pool
from webhook.cluster.device_inventory import DeviceInventory
from webhook.cluster.holders import Holding, pool_of

MOST_NAMESPACES = 200
"""Of more, those with the fewest devices are shown as one."""

OTHER_NAMESPACES = "(others)"
"""No namespace is called so."""


class DeviceMetrics(Collector):
    """Adds up the inventory at each scrape. Labels have few values, whatever Pods request.

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
        for resource, count in offered.items():
            if pool := policy.pool_of_resource(resource):
                allocatable.add_metric((pool.name, resource), count)
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
    holdings: Iterable[tuple[Holding, int]], policy: Policy, offered: Mapping[str, int]
) -> Counter[tuple[str, str, str, str]]:
    """Return devices by pool, resource, namespace and whether they are held."""
    held = list(holdings)
    shown = _largest(held)
    found: Counter[tuple[str, str, str, str]] = Counter()
    for (device, namespace, scheduled), count in held:
        if pool := pool_of(device, policy):
            where = namespace if namespace in shown else OTHER_NAMESPACES
            state = "true" if scheduled else "false"
            found[pool.name, _label(device, pool, offered), where, state] += count
    return found


def _largest(holdings: Iterable[tuple[Holding, int]]) -> frozenset[str]:
    """Return the namespaces with the most devices, as many as are shown."""
    devices: Counter[str] = Counter()
    for holding, count in holdings:
        devices[holding.namespace] += count
    ranked = sorted(devices, key=lambda name: (-devices[name], name))
    return frozenset(ranked[:MOST_NAMESPACES])


def _label(device: str, pool: Pool, offered: Mapping[str, int]) -> str:
    """Return what the devices are called, and the policy's pattern for what Pods may make up."""
    if device in offered or device in pool.resources.exact:
        return device
    return next((f"{p}*" for p in pool.resources.prefixes if device.startswith(p)), device)
