"""The series of a server, and their labels, from the registry that it exposes."""

from __future__ import annotations

from collections.abc import Iterator

import yaml
from prometheus_client import CollectorRegistry

from policies.compiled import Policy
from policies.policy import default_policy_text, parse_policy
from webhook.cluster.holders import Holding
from webhook.cluster_metrics import ClusterMetrics
from webhook.estate_metrics import EstateMetrics
from webhook.metrics import Metrics
from webhook.upkeep_metrics import UpkeepMetrics


def exported() -> dict[str, set[str]]:
    """Return the series of a server by name, with the labels that they carry."""
    policy = parse_policy(yaml.safe_load(default_policy_text())).compile()
    metrics = Metrics(policy, "test")
    metrics.track_certificate(lambda: 0.0)
    metrics.track_under_way(lambda: 0)
    upkeep = UpkeepMetrics(metrics.registry)
    upkeep.track_policy(lambda: 1, lambda: "")
    upkeep.track_leader(lambda: True)
    cluster = ClusterMetrics(metrics.registry)
    cluster.track(_Cluster())
    metrics.registry.register(EstateMetrics(_Estate(policy)))  # type: ignore[arg-type]
    return {
        name: labels | ({"le"} if name.endswith("_bucket") else set())
        for family, labels in _labels(metrics.registry).items()
        for name in _series(family, metrics.registry)
    }


class _Cluster:
    """What follows one collection."""

    def objects(self) -> dict[str, int]:
        return {"nodes": 1}

    def staleness(self) -> dict[str, float | None]:
        return {"nodes": 1.0}


class _Estate:
    """As much of Estate as its metrics look at."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def holdings(self) -> Iterator[tuple[Holding, int]]:
        yield Holding("nvidia.com/gpu", "ml", scheduled=True), 1

    def allocatable(self) -> dict[str, int]:
        return {"nvidia.com/gpu": 8}


def _labels(registry: CollectorRegistry) -> dict[str, set[str]]:
    """Return the labels of each family of metrics: those of its samples, or those declared."""
    found: dict[str, set[str]] = {}
    for collector in set(registry._collector_to_names):  # noqa: SLF001
        declared = set(getattr(collector, "_labelnames", ()))
        for family in collector.collect():
            sampled = {label for sample in family.samples for label in sample.labels}
            found[family.name] = declared | sampled
    return found


def _series(family: str, registry: CollectorRegistry) -> list[str]:
    kinds = {each.name: each.type for each in registry.collect()}
    endings = {"counter": ["_total"], "info": ["_info"], "histogram": ["_bucket", "_sum", "_count"]}
    return [family + ending for ending in endings.get(kinds[family], [""])]
