"""Metrics of the cluster facts: how recent and how many they are, and how often watches fail."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, get_args

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from webhook.cluster.claims import LookupResult


class Followed(Protocol):
    """A source of watched collections: ClusterFacts or DeviceInventory."""

    def objects(self) -> Mapping[str, int]: ...

    def staleness(self) -> Mapping[str, float | None]: ...


class ClusterMetrics:
    """Counters of the watches, in the registry of the server. Labels have few values.

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

    def track(self, *followed: Followed) -> None:
        """Export the size and age of each collection."""
        for source in followed:
            for resource in source.objects():
                self._restarts.labels(resource)
        self._registry.register(_Known(followed))


class _Known(Collector):
    def __init__(self, followed: Sequence[Followed]) -> None:
        self._followed = followed

    def collect(self) -> Iterator[GaugeMetricFamily]:
        objects = GaugeMetricFamily(
            "gpufence_cluster_objects",
            "Objects of the cluster that are known.",
            labels=("resource",),
        )
        known = {
            name: count for source in self._followed for name, count in source.objects().items()
        }
        for resource, count in known.items():
            objects.add_metric((resource,), count)
        yield objects
        heard = GaugeMetricFamily(
            "gpufence_cluster_last_event_timestamp_seconds",
            "When the API server was last heard, a bookmark a minute included.",
            labels=("resource",),
        )
        ages = {name: age for source in self._followed for name, age in source.staleness().items()}
        for resource, seconds in ages.items():
            if seconds is not None:
                heard.add_metric((resource,), time.time() - seconds)
        yield heard
