"""Metrics of a replica. Every label has a bounded set of values, whatever clients send."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import metadata
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.exposition import choose_encoder

from policies.catalog import TITLES
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

GAUGES = {
    "gpufence_certificate_expiry_timestamp_seconds": "Unix time at which the serving certificate "
    "expires.",
    "gpufence_admission_requests_in_flight": "Admission requests that are being answered.",
    "gpufence_policy_generation": "Generation of the FencePolicy that is active; 0 for a file.",
    "gpufence_policy_stale": "1 while the newest FencePolicy is invalid or deleted, and an older "
    "one is active.",
}
"""The gauges of ``Metrics.track``, and their help."""

# From a small Pod's decision, tens of microseconds, to the webhook's own timeout of 3 s.
_BUCKETS = (50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 50e-3, 0.25, 1.0, 3.0)


class Metrics:
    """The metrics of one server, in a registry of their own.

    An attribute that is a function counts an event; its arguments are the values of the labels.
    """

    def __init__(self, policy: Policy, policy_name: str) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        requests = self._counter(
            "gpufence_admission_requests",
            "Admission requests that were answered.",
            ("path", "operation", "kind", "result"),
        )
        duration = Histogram(
            "gpufence_admission_duration_seconds",
            "Time from a request's headers to its answer.",
            ("path",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        # Looked up once: the sets of values are small, and every request needs one.
        self._answers = cache(requests.labels)
        self._durations = cache(duration.labels)
        self._findings = self._counter(
            "gpufence_findings",
            "Findings of the rules, at the validating endpoint.",
            ("rule", "action"),
        )
        self.failed: Callable[[], None] = self._counter(
            "gpufence_internal_errors",
            "Requests with an internal error. The log has the traceback of each.",
        ).inc
        self.rule_failed: Callable[[str], None] = self._counting(
            "gpufence_rule_failures",
            "Errors in rules that do not enforce. The log has the traceback of each.",
            "rule",
            TITLES,
        )
        self.connection_rejected: Callable[[Rejection], None] = self._counting(
            "gpufence_connections_refused",
            "Connections that were rejected (too_many, handshake) or evicted for another.",
            "reason",
            get_args(Rejection),
        )
        self._policy_name = policy_name
        self._policy = Info("gpufence_policy", "The active policy.", registry=self.registry)
        self.use(policy)
        Info("gpufence_build", "The version of gpufence.", registry=self.registry).info(
            {"version": metadata.version("gpufence"), "python": platform.python_version()}
        )
        reloads = self._counter(
            "gpufence_policy_reload",
            "New versions of the FencePolicy by result: applied or rejected.",
            ("result",),
        )
        self._reloads = {True: reloads.labels("applied"), False: reloads.labels("rejected")}
        self.task_failed: Callable[[str], None] = self._counting(
            "gpufence_task_failures", "Failed runs of a periodic task.", "task"
        )

    def _counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _counting(
        self, name: str, text: str, label: str, values: Iterable[str] = ()
    ) -> Callable[..., None]:
        """Return what counts an event by a label; Prometheus sees the first one of ``values``."""
        counter = self._counter(name, text, [label])
        for value in values:
            counter.labels(value)
        return lambda value: counter.labels(value).inc()

    def use(self, policy: Policy) -> None:
        """Show which policy is active."""
        pools = ",".join(pool.name for pool in policy.pools)
        self._policy.info({"policy": self._policy_name, "pools": pools})

    def track(self, gauge: str, value: Callable[[], float]) -> None:
        """Export what ``value`` returns at the time of a scrape; ``gauge`` is one of ``GAUGES``."""
        exported = Gauge(gauge, GAUGES[gauge], registry=self.registry)
        exported.set_function(lambda: float(value()))

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
            self._findings.labels(finding.rule, finding.outcome).inc()

    def policy_changed(self, is_applied: bool) -> None:
        self._reloads[is_applied].inc()

    def expose(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics, and their content type, in a format that ``accept`` prefers."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


def kind_label(api_version: str, kind: str) -> str:
    """Return the kind where it is one of the core groups', which are few, and ``other`` if not."""
    if (api_version, kind) == ("v1", "Pod"):
        return kind
    if is_core_workload({"apiVersion": api_version, "kind": kind}):
        return kind
    return OTHER_KIND
