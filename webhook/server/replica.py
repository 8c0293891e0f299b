"""The running server: TLS, both listeners, upkeep, the drain. What `gpufence serve` calls."""

from __future__ import annotations

import asyncio
import logging
import sys
from datetime import UTC, datetime

import uvloop
from prometheus_client import disable_created_metrics

from certs.source import FileSource, Source
from webhook.admission.handler import Admission
from webhook.cluster.device_inventory import Estate
from webhook.cluster.facts import ClusterFacts
from webhook.http.edge import admission_handler, operations_app
from webhook.http.lifecycle import Lifecycle
from webhook.http.listener import Listeners, listen, port_of
from webhook.http.tls import ServedCertificate
from webhook.kube.connection import Connection
from webhook.logs import configure, event
from webhook.metrics.admission import Metrics
from webhook.metrics.cluster import ClusterMetrics
from webhook.metrics.controllers import UpkeepMetrics
from webhook.metrics.devices import EstateMetrics
from webhook.metrics.gathered import gathered_app
from webhook.registration.controller import Upkeep
from webhook.server.options import ServeOptions
from webhook.server.periodic_task import Repeated
from webhook.server.policy_reload import ReloadingPolicy
from webhook.server.signals import Signals, within

_log = logging.getLogger("gpufence")

_RETRY_SECONDS = 1.0


def serve(options: ServeOptions) -> int:
    """Serve until SIGTERM or SIGINT, drain, and return the exit status (0).

    A second signal cuts the drain short. Logs go to standard error. The line with
    ``"event": "ready"`` carries the ports that were bound, as ``port`` and ``metricsPort``.

    Raises:
        CertificateError: (certs.errors) the key pair cannot be used; nothing listens yet.
        PolicyUnusableError: (webhook.server.policy_reload) the policy is none; nothing listens yet.
        ListenError: (webhook.http.listener) an address cannot be listened on.
        ConfigurationError: (webhook.kube.errors) ``facts`` leads nowhere; nothing listens yet.
    """
    worker = options.worker
    configure(options.log_format, sys.stderr, worker.number if worker else None)
    # When each counter began is a second series for every one of them, and of no use to rate().
    disable_created_metrics()  # type: ignore[no-untyped-call]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(options))
    return 0


async def _serve(options: ServeOptions) -> None:
    worker = options.worker
    replica = _Replica(options, await ReloadingPolicy.load(options.policy))
    stopping = Signals(worker.lifeline if worker else None)
    listeners = Listeners(replica.metrics.refused_connection, shared=worker is not None)
    running: list[asyncio.Task[None]] = []
    try:
        if await _started(replica, listeners, stopping):
            running += [
                asyncio.create_task(task.forever(seconds)) for task, seconds in replica.tasks
            ]
            await stopping.first.wait()
            await _drain(replica.lifecycle, stopping, options)
    finally:
        for task in running:
            task.cancel()
        if replica.upkeep is not None:
            await replica.upkeep.close()
        await listeners.close()
        if replica.facts is not None:
            await replica.facts.stop()
        if replica.estate is not None:
            await replica.estate.keep(False)
    event(_log, logging.INFO, "stopped")


class _Replica:
    """What a replica is made of, each part told of the others; nothing runs or listens yet."""

    def __init__(self, options: ServeOptions, policy: ReloadingPolicy) -> None:
        self.options = options
        self.lifecycle = Lifecycle(options.most_under_way)
        self.metrics = Metrics(policy.current, options.policy_name)
        self._policy = policy
        counters = UpkeepMetrics(self.metrics.registry)
        counters.track_policy(lambda: policy.generation, lambda: policy.problem)
        self.facts, self.estate = _followed(options, policy, self.metrics)
        self.admission = Admission(policy.current, self.metrics, lambda: _now().date(), self.facts)
        policy.followers += [self.admission.use, self.metrics.use]
        policy.counters.append(counters.reloaded)
        self.upkeep = self._upkeep(counters)
        self.certificate = ServedCertificate(
            _source(options, self.upkeep),
            _now,
            options.client_authority,
            lambda: counters.failed("certificate reload"),
        )
        self.metrics.track_under_way(lambda: self.lifecycle.under_way)
        self.metrics.track_certificate(lambda: self.certificate.expires.timestamp())
        self.first = (
            None if self.upkeep is None else Repeated("certificates", self.upkeep.keep_certificates)
        )
        """What has to succeed before a review can be answered."""
        self.tasks = self._tasks(counters)
        """What is done beside answering, and how many seconds apart."""

    def unready(self) -> str:
        """Return why requests should not be sent here; empty if they should."""
        reason = self.lifecycle.unready(self.certificate.expires, _now())
        if not reason and self.facts is not None:
            return self.facts.unready()
        return reason

    def troubles(self) -> list[str]:
        """Return what somebody should look at, a line each."""
        tasks = [task for task, _ in self.tasks] + ([self.first] if self.first else [])
        lines = [f"{task.name}: {task.problem}" for task in tasks if task.problem]
        if self.certificate.problem:
            lines.append(f"certificate refused, an older one is served: {self.certificate.problem}")
        if self._policy.problem:
            lines.append(f"policy refused, an older one is in force: {self._policy.problem}")
        return lines

    def _upkeep(self, counters: UpkeepMetrics) -> Upkeep | None:
        if self.options.cluster is None:
            return None
        return Upkeep(
            self.options.cluster,
            lambda: self._policy.current,
            counters,
            lambda: self.lifecycle.serving and not self.lifecycle.draining,
        )

    def _tasks(self, counters: UpkeepMetrics) -> list[tuple[Repeated, float]]:
        reload_seconds = self.options.reload_seconds
        tasks = [
            (Repeated("policy reload", self._policy.poll, counters.failed), reload_seconds),
            (
                Repeated("certificate reload", self.certificate.poll, counters.failed),
                reload_seconds,
            ),
        ]
        if self.upkeep is not None and self.options.cluster is not None:
            every = self.options.cluster.poll_seconds
            tasks.append((Repeated("upkeep", self.upkeep.tick, counters.failed), every))
        if self.estate is not None:
            keeping = Repeated("estate", self._keep_estate, counters.failed)
            tasks.append((keeping, reload_seconds))
        return tasks

    async def _keep_estate(self) -> None:
        if self.estate is not None:
            await self.estate.keep(self.upkeep is None or self.upkeep.leads)


async def _started(replica: _Replica, listeners: Listeners, stopping: Signals) -> bool:
    """Listen, and say that the replica is ready; False if told to stop before that."""
    options, worker = replica.options, replica.options.worker
    if replica.upkeep is None or replica.upkeep.source is None:
        # Files that are no key pair are a mistake of whoever starts this, and end it.
        replica.certificate.load()
    if replica.facts is not None:
        await replica.facts.start()
    # The plain port first: there a probe can see that the other one is not served yet.
    operations = operations_app(replica.metrics, replica.unready, replica.troubles)
    if worker is None:
        operations_at = listen(options.metrics_host, options.metrics_port, "metrics-port")
    else:
        operations_at = worker.operations
        await listeners.serve(operations, worker.own[worker.number])
        operations = gathered_app([port_of(own) for own in worker.own])
    await listeners.serve(operations, operations_at)
    if replica.first is not None and not await _succeeds(replica.first, stopping):
        return False
    tls = replica.certificate.load()
    reviews = admission_handler(replica.admission, replica.metrics, replica.lifecycle)
    reviews_at = worker.reviews if worker else listen(options.host, options.port, "port")
    await listeners.serve(reviews, reviews_at, tls)
    replica.lifecycle.serving = True
    event(
        _log,
        logging.INFO,
        "ready",
        host=options.host,
        port=port_of(reviews_at),
        metricsHost=options.metrics_host,
        metricsPort=port_of(operations_at),
        policy=options.policy_name,
        certificateExpires=replica.certificate.expires.isoformat(),
    )
    return True


def _followed(
    options: ServeOptions, policy: ReloadingPolicy, metrics: Metrics
) -> tuple[ClusterFacts | None, Estate | None]:
    """Return what follows a cluster, as the policy in force needs it: facts, and the estate."""
    if options.facts is None and options.estate is None:
        return None, None
    counters = ClusterMetrics(metrics.registry)
    facts = estate = None
    if options.facts is not None:
        facts = ClusterFacts(Connection(options.facts), policy.current, observer=counters)
        policy.followers.append(facts.use)
    if options.estate is not None:
        restarted = counters.watch_restarted
        estate = Estate(Connection(options.estate), policy.current, restarted=restarted)
        policy.followers.append(estate.use)
        metrics.registry.register(EstateMetrics(estate))
    counters.track(*[each for each in (facts, estate) if each is not None])
    return facts, estate


def _source(options: ServeOptions, upkeep: Upkeep | None) -> Source:
    if upkeep is not None and upkeep.source is not None:
        return upkeep.source
    if options.tls_cert is None or options.tls_key is None:
        raise ValueError("neither files nor a Secret to take the certificate from")
    return FileSource(options.tls_cert, options.tls_key)


async def _succeeds(task: Repeated, stopping: Signals) -> bool:
    """Try for as long as it takes; False if told to stop."""
    while not await task.once():
        if await within(_RETRY_SECONDS, stopping.first.wait):
            return False
    return True


async def _drain(lifecycle: Lifecycle, stopping: Signals, options: ServeOptions) -> None:
    """Go on serving, unready, until nobody should send requests any more; then finish them."""
    lifecycle.draining = True
    event(_log, logging.INFO, "draining", seconds=options.drain_seconds)
    await within(options.drain_seconds, stopping.second.wait)
    # aiohttp reads no further once it cleans up: a body that is still arriving would be lost.
    await within(options.grace_seconds, lifecycle.finished)


def _now() -> datetime:
    return datetime.now(UTC)
