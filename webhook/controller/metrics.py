"""Metrics of the controller."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

from certs.keypair import parse_certificates


class ControllerMetrics:
    """The metrics of the controller, in a registry of their own.

    An attribute that is a function counts an event; its arguments are the values of the labels.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registered: Callable[[str, str], None] = self._counting(
            "gpufence_registration_writes",
            "Writes of webhook configurations and admission policies, by reason: created, changed, "
            "drift (repaired), or deleted.",
            "kind",
            "reason",
        )
        self.issued: Callable[[str], None] = self._counting(
            "gpufence_certificates_issued", "Certificates that were issued, by Secret.", "secret"
        )
        self.task_failed: Callable[[str], None] = self._counting(
            "gpufence_task_failures", "Failed runs of a periodic task.", "task"
        )
        self._successes = Gauge(
            "gpufence_controller_last_success_timestamp_seconds",
            "Unix time at which a periodic task of the controller last succeeded.",
            ("task",),
            registry=self.registry,
        )
        self._expiry = Gauge(
            "gpufence_ca_expiry_timestamp_seconds",
            "Unix time at which the first of the CAs expires that sign or signed what is served.",
            registry=self.registry,
        )
        self._published = Gauge(
            "gpufence_ca_bundle_certificates",
            "CAs in the caBundle: two during a rotation.",
            registry=self.registry,
        )

    def _counting(self, name: str, text: str, *labels: str) -> Callable[..., None]:
        counter = Counter(name, text, labels, registry=self.registry)
        return lambda *values: counter.labels(*values).inc()

    def task_succeeded(self, task: str) -> None:
        self._successes.labels(task).set(time.time())

    def authorities(self, pem: bytes) -> None:
        """Show which CAs API servers must trust."""
        ends = [ca.not_valid_after_utc for ca in parse_certificates(pem, "CA")]
        self._expiry.set(min(ends).timestamp())

    def published(self, bundle: bytes) -> None:
        """Show the caBundle."""
        self._published.set(len(parse_certificates(bundle, "caBundle")))
