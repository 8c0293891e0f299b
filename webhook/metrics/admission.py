"""Metrics of admission. Every label has a bounded set of values, whatever clients send."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from functools import cache
from importlib import metadata
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder

from policies.finding import Finding
from policies.kubernetes.templates import is_core_workload
from policies.policy import Policy

Result = Literal["allowed", "patched", "denied", "malformed", "bad_request", "error", "overloaded"]
"""What became of a request; ``malformed`` faults the object, ``bad_request`` the call, and
``overloaded`` found no memory for a large review."""

UNKNOWN = "unknown"
OTHER_KIND = "other"

Rejection = Literal["too_many", "handshake", "evicted"]
"""Why a connection was not accepted, or was closed in favor of another."""

# From a small Pod's decision, tens of microseconds, to the webhook's own timeout of 3 s.
_BUCKETS = (50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 50e-3, 0.25, 1.0, 3.0)


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self, policy: Policy, policy_name: str) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "gpufence_admission_requests",
            "Admission requests that were answered.",
            ("path", "operation", "kind", "result"),
            registry=self.registry,
        )
        self._duration = Histogram(
            "gpufence_admission_duration_seconds",
            "Time from a request's headers to its answer.",
            ("path",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        # Looked up once: the sets of values are small, and every request needs one.
        self._answers = cache(self._requests.labels)
        self._durations = cache(self._duration.labels)
        self._findings = Counter(
            "gpufence_findings",
            "Findings of the rules, at the validating endpoint.",
            ("rule", "action"),
            registry=self.registry,
        )
        self._internal_errors = Counter(
            "gpufence_internal_errors",
            "Requests on which gpufence itself failed; each is in the log with its traceback.",
            registry=self.registry,
        )
        self._rejected_connections = Counter(
            "gpufence_connections_refused",
            "Connections that were rejected (too_many, handshake) or evicted for another.",
            ("reason",),
            registry=self.registry,
        )
        self._policy_name = policy_name
        self._policy = Info("gpufence_policy", "The active policy.", registry=self.registry)
        self.use(policy)
        Info("gpufence_build", "The version that runs.", registry=self.registry).info(
            {"version": metadata.version("gpufence"), "python": platform.python_version()}
        )

    def use(self, policy: Policy) -> None:
        """Show which policy is active."""
        pools = ",".join(pool.name for pool in policy.pools)
        self._policy.info({"policy": self._policy_name, "pools": pools})

    def track_in_flight(self, count: Callable[[], int]) -> None:
        """Show how many requests are being answered."""
        Gauge(
            "gpufence_admission_requests_in_flight",
            "Admission requests that are being answered.",
            registry=self.registry,
        ).set_function(lambda: float(count()))

    def track_certificate(self, expiry: Callable[[], float]) -> None:
        """Show when the serving certificate ends; ``expiry`` returns it in seconds of the epoch."""
        Gauge(
            "gpufence_certificate_expiry_timestamp_seconds",
            "End of the life of the serving certificate.",
            registry=self.registry,
        ).set_function(expiry)

    def count_response(
        self, path: str, result: Result, operation: str = UNKNOWN, kind: str = OTHER_KIND
    ) -> None:
        """Count a response; ``kind`` is the result of ``kind_label``."""
        self._answers(path, operation, kind, result).inc()

    def took(self, path: str, seconds: float) -> None:
        """Record the duration of a response."""
        self._durations(path).observe(seconds)

    def count_findings(self, findings: Iterable[Finding]) -> None:
        """Count findings."""
        for finding in findings:
            self._findings.labels(finding.rule, finding.action).inc()

    def connection_rejected(self, reason: Rejection) -> None:
        """Count a connection that was not accepted."""
        self._rejected_connections.labels(reason).inc()

    def failed(self) -> None:
        """Count a failure of gpufence itself."""
        self._internal_errors.inc()

    def expose(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics, and their content type, in a format that ``accept`` prefers."""
        return expose(self.registry, accept)


def expose(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Return the metrics of a registry, and their content type, as ``accept`` prefers."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def kind_label(api_version: str, kind: str) -> str:
    """Return the kind where it is one of the core groups', which are few, and ``other`` if not."""
    if (api_version, kind) == ("v1", "Pod"):
        return kind
    if is_core_workload({"apiVersion": api_version, "kind": kind}):
        return kind
    return OTHER_KIND
