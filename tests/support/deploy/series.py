"""The series of a server, and their labels, from the registry that it exposes."""

from __future__ import annotations

from collections.abc import Iterator

import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from policies.document import parse_policy
from policies.policy import Policy
from policies.shipped import default_policy_text
from webhook.kube.nodes import Offer
from webhook.serve.cluster.device_inventory import Holding
from webhook.serve.metrics.cluster import ClusterMetrics, DeviceMetrics
from webhook.serve.metrics.replica import GAUGES, Metrics


def exported() -> dict[str, set[str]]:
    """Return the series of a server by name, with the labels that they carry."""
    everything = registry()
    labels_of = labels(everything)
    return {
        name: labels_of[family.name] | ({"le"} if name.endswith("_bucket") else set())
        for family in everything.collect()
        for name in names(family)
    }


def registry() -> CollectorRegistry:
    """Return a registry with every metric that a replica can expose."""
    policy = parse_policy(yaml.safe_load(default_policy_text()))
    metrics = Metrics(policy, "test")
    for gauge in GAUGES:
        metrics.track(gauge, lambda: 0)
    cluster = ClusterMetrics(metrics.registry)
    cluster.track(_Cluster())  # type: ignore[arg-type]
    metrics.registry.register(DeviceMetrics(_Inventory(policy)))  # type: ignore[arg-type]
    return metrics.registry


def labels(registry: CollectorRegistry) -> dict[str, set[str]]:
    """Return the labels of each family of metrics: those of its samples, or those declared."""
    by_family: dict[str, set[str]] = {}
    for collector in set(registry._collector_to_names):  # noqa: SLF001
        declared = set(getattr(collector, "_labelnames", ()))
        for family in collector.collect():
            sampled = {label for sample in family.samples for label in sample.labels}
            by_family[family.name] = declared | sampled
    return by_family


def names(family: Metric) -> list[str]:
    """Return the names of the series that a family of metrics consists of."""
    endings = {"counter": ["_total"], "info": ["_info"], "histogram": ["_bucket", "_sum", "_count"]}
    return [family.name + ending for ending in endings.get(family.type, [""])]


class _Cluster:
    """What follows one collection."""

    def objects(self) -> dict[str, int]:
        return {"nodes": 1}

    def staleness(self) -> dict[str, float | None]:
        return {"nodes": 1.0}


class _Inventory:
    """As much of DeviceInventory as its metrics read."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def holdings(self) -> Iterator[tuple[Holding, int]]:
        yield Holding("nvidia.com/gpu", "ml", scheduled=True), 1

    def allocatable(self) -> dict[Offer, int]:
        return {Offer("nvidia.com/gpu", "nvidia", ""): 8}

    def without_labels(self) -> dict[str, int]:
        return {"nvidia": 0}
