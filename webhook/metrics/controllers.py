"""Metrics of a replica's controllers: certificates, registration, policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge

from certs.keypair import parse_certificates
from certs.secret import Change, Stored

ReloadResult = Literal["applied", "rejected"]
"""The result for a new policy document."""


class ControllerMetrics:
    """Counters and gauges in the registry of the server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._reloads = Counter(
            "gpufence_policy_reload",
            "New policy documents by result: applied or rejected.",
            ("result",),
            registry=registry,
        )
        for result in ("applied", "rejected"):
            self._reloads.labels(result)
        self._writes = Counter(
            "gpufence_registration_writes",
            "Writes of webhook configurations and admission policies, by reason: created, changed, "
            "drift (repaired), or deleted.",
            ("kind", "reason"),
            registry=registry,
        )
        self._changes = Counter(
            "gpufence_certificate_changes",
            "Changes that this replica made to the Secret with CA and serving certificate.",
            ("change",),
            registry=registry,
        )
        self._failures = Counter(
            "gpufence_controller_failures",
            "Failed attempts to reconcile certificates, registration or policy.",
            ("task",),
            registry=registry,
        )
        self._authorities = Gauge(
            "gpufence_ca_expiry_timestamp_seconds",
            "When the CA that signs expires, in seconds since the epoch.",
            registry=registry,
        )
        self._published = Gauge(
            "gpufence_ca_bundle_certificates",
            "CAs in the caBundle: two during a rotation.",
            registry=registry,
        )

    def reloaded(self, result: ReloadResult) -> None:
        self._reloads.labels(result).inc()

    def registered(self, kind: str, reason: str) -> None:
        self._writes.labels(kind, reason).inc()

    def certificates_changed(self, change: Change) -> None:
        self._changes.labels(str(change)).inc()

    def failed(self, task: str) -> None:
        self._failures.labels(task).inc()

    def authorities(self, stored: Stored) -> None:
        """Show what is in the Secret."""
        [authority, *_] = parse_certificates(stored.authority.certificate_pem, "authority")
        self._authorities.set(authority.not_valid_after_utc.timestamp())
        self._published.set(len(stored.authorities))

    def track_policy(self, generation: Callable[[], int], problem: Callable[[], str]) -> None:
        """Show how many policies have been active, and whether the newest document is."""
        Gauge(
            "gpufence_policy_generation",
            "How many policies have been active since the start.",
            registry=self._registry,
        ).set_function(lambda: float(generation()))
        Gauge(
            "gpufence_policy_stale",
            "1 while the newest policy document is rejected and an older one is active.",
            registry=self._registry,
        ).set_function(lambda: float(bool(problem())))

    def track_leader(self, leading: Callable[[], bool]) -> None:
        """Show whether this replica writes the webhook configurations."""
        Gauge(
            "gpufence_leader",
            "1 on the replica that writes the webhook configurations.",
            registry=self._registry,
        ).set_function(lambda: float(leading()))
