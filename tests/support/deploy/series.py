"""The series of replica and controller, and their labels, from the registries that they expose."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from specs import default_spec, policy_of
from webhook.controller.metrics import ControllerMetrics
from webhook.serve.metrics.cluster import ClusterMetrics
from webhook.serve.metrics.replica import GAUGES, Metrics


def exported() -> dict[str, set[str]]:
    """Return the series of both processes by name, with the labels that they carry."""
    return series(registry()) | series(ControllerMetrics().registry)


def series(everything: CollectorRegistry) -> dict[str, set[str]]:
    """Return the series of a registry by name, with their labels."""
    labels_of = labels(everything)
    return {
        name: labels_of[family.name] | ({"le"} if name.endswith("_bucket") else set())
        for family in everything.collect()
        for name in names(family)
    }


def registry() -> CollectorRegistry:
    """Return a registry with every metric that a replica can expose."""
    policy = policy_of(default_spec())
    metrics = Metrics(policy, "test")
    for gauge in GAUGES:
        metrics.track(gauge, lambda: 0)
    cluster = ClusterMetrics(metrics.registry)
    cluster.track(_Facts())  # type: ignore[arg-type]
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


class _Facts:
    """As much of ClusterFacts as the metrics read."""

    @property
    def watches(self) -> _Watches:
        return _Watches()

    def nodes_without_labels(self) -> dict[str, int]:
        return {"nvidia": 0}


class _Watches:
    """What follows one collection."""

    def objects(self) -> dict[str, int]:
        return {"nodes": 1}

    def staleness(self) -> dict[str, float | None]:
        return {"nodes": 1.0}
