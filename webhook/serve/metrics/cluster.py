"""Metrics of the cluster: how recent the facts are, and the nodes without the labels of a pool."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import get_args

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from webhook.cluster.claims import LookupResult
from webhook.cluster.facts import ClusterFacts


class ClusterMetrics(Collector):
    """What a replica knows of the cluster, in the registry of the server.

    The label ``resource`` is what the API calls a collection: nodes, namespaces, deviceclasses ...
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._facts: ClusterFacts | None = None
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

    def track(self, facts: ClusterFacts) -> None:
        """Export the size and age of each collection, and the nodes without labels."""
        for resource in facts.watches.objects():
            self._restarts.labels(resource)
        self._facts = facts
        self._registry.register(self)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        if self._facts is None:
            return
        watches, now = self._facts.watches, time.time()
        yield _gauge(
            "gpufence_cluster_objects",
            "Number of objects in the last known state of the cluster.",
            "resource",
            watches.objects(),
        )
        yield _gauge(
            "gpufence_cluster_last_event_timestamp_seconds",
            "Unix time of the last watch event or bookmark from the API server.",
            "resource",
            {name: now - age for name, age in watches.staleness().items() if age is not None},
        )
        yield _gauge(
            "gpufence_pool_nodes_without_labels",
            "Nodes that offer devices of a pool and have the labels of no pool.",
            "pool",
            self._facts.nodes_without_labels(),
        )


def _gauge(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        gauge.add_metric([key], value)
    return gauge
