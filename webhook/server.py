"""The running server: TLS, both listeners, upkeep, the drain. What `gpufence serve` calls."""

from __future__ import annotations

import asyncio
import logging
import sys
from datetime import UTC, datetime

import uvloop
from prometheus_client import disable_created_metrics

from certs.source import FileSource, Source
from webhook.admission import Admission
from webhook.app import admission_handler, operations_app
from webhook.cluster.connection import Connection
from webhook.cluster.estate import Estate
from webhook.cluster.facts import ClusterFacts
from webhook.cluster_metrics import ClusterMetrics
from webhook.estate_metrics import EstateMetrics
from webhook.gathered import gathered_app
from webhook.lifecycle import Lifecycle
from webhook.listen import Listeners, listen, port_of
from webhook.logs import configure, event
from webhook.metrics import Metrics
from webhook.options import ServeOptions
from webhook.policy_reload import ReloadingPolicy
from webhook.repeated import Repeated
from webhook.stopping import Signals, within
from webhook.tls import ServedCertificate
from webhook.upkeep import Upkeep
from webhook.upkeep_metrics import UpkeepMetrics

_log = logging.getLogger("gpufence")

_RETRY_SECONDS = 1.0


def serve(options: ServeOptions) -> int:
    """Serve until SIGTERM or SIGINT, drain, and return the exit status (0).

    A second signal cuts the drain short. Logs go to standard error. The line with
    ``"event": "ready"`` carries the ports that were bound, as ``port`` and ``metricsPort``.

    Raises:
        CertificateError: (certs.errors) the key pair cannot be used; nothing listens yet.
        PolicyUnusableError: (webhook.policy_reload) the policy is none; nothing listens yet.
        ListenError: (webhook.listen) an address cannot be listened on.
        ConfigurationError: (webhook.cluster.errors) ``facts`` leads nowhere; nothing listens yet.
    """
    worker = options.worker
    configure(options.log_format, sys.stderr, worker.number if worker else None)
    # When each counter began is a second series for every one of them, and of no use to rate().
    disable_created_metrics()  # type: ignore[no-untyped-call]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(options))
    return 0


async def _serve(options: ServeOptions) -> None:
    lifecycle = Lifecycle(options.most_under_way)
    policy = await ReloadingPolicy.load(options.policy)
    metrics = Metrics(policy.current, options.policy_name)
    counters = UpkeepMetrics(metrics.registry)
    counters.track_policy(lambda: policy.generation, lambda: policy.problem)
    facts, estate = _followed(options, policy, metrics)
    admission = Admission(policy.current, metrics, lambda: _now().date(), facts)
    policy.followers += [admission.use, metrics.use]
    policy.counters.append(counters.reloaded)

    upkeep = None
    if options.cluster is not None:
        upkeep = Upkeep(
            options.cluster,
            lambda: policy.current,
            counters,
            lambda: lifecycle.serving and not lifecycle.draining,
        )
    certificate = ServedCertificate(_source(options, upkeep), _now, options.client_authority)
    metrics.track_under_way(lambda: lifecycle.under_way)
    metrics.track_certificate(lambda: certificate.expires.timestamp())
    learning = facts.unready if facts is not None else lambda: ""
    tasks = _tasks(options, policy, certificate, upkeep, counters)
    if estate is not None:
        keeping = Repeated(
            "estate", lambda: estate.keep(upkeep is None or upkeep.leads), counters.failed
        )
        tasks.append((keeping, options.reload_seconds))
    first = None if upkeep is None else Repeated("certificates", upkeep.keep_certificates)
    operations = operations_app(
        metrics,
        lambda: lifecycle.unready(certificate.expires, _now()) or learning(),
        lambda: [
            *(f"{task.name}: {task.problem}" for task, _ in tasks if task.problem),
            *([f"certificates: {first.problem}"] if first and first.problem else []),
            *(
                [f"policy refused, an older one is in force: {policy.problem}"]
                * bool(policy.problem)
            ),
        ],
    )
    worker = options.worker
    stopping = Signals(worker.lifeline if worker else None)
    listeners = Listeners(metrics.refused_connection, shared=worker is not None)
    running: list[asyncio.Task[None]] = []
    try:
        if upkeep is None or upkeep.source is None:
            certificate.load()
        if facts is not None:
            await facts.start()
        # The plain port first: there a probe can see that the other one is not served yet.
        if worker is None:
            operations_at = listen(options.metrics_host, options.metrics_port, "metrics-port")
        else:
            operations_at = worker.operations
            await listeners.serve(operations, worker.own[worker.number])
            operations = gathered_app([port_of(own) for own in worker.own])
        await listeners.serve(operations, operations_at)
        if first is not None and not await _succeeds(first, stopping):
            return
        reviews, tls = admission_handler(admission, metrics, lifecycle), certificate.load()
        reviews_at = worker.reviews if worker else listen(options.host, options.port, "port")
        await listeners.serve(reviews, reviews_at, tls)
        lifecycle.serving = True
        event(
            _log,
            logging.INFO,
            "ready",
            host=options.host,
            port=port_of(reviews_at),
            metricsHost=options.metrics_host,
            metricsPort=port_of(operations_at),
            policy=options.policy_name,
            certificateExpires=certificate.expires.isoformat(),
        )
        running += [asyncio.create_task(task.forever(seconds)) for task, seconds in tasks]
        await stopping.first.wait()
        await _drain(lifecycle, stopping, options)
    finally:
        for task in running:
            task.cancel()
        if upkeep is not None:
            await upkeep.close()
        await listeners.close()
        if facts is not None:
            await facts.stop()
        if estate is not None:
            await estate.keep(False)
    event(_log, logging.INFO, "stopped")


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


def _tasks(
    options: ServeOptions,
    policy: ReloadingPolicy,
    certificate: ServedCertificate,
    upkeep: Upkeep | None,
    counters: UpkeepMetrics,
) -> list[tuple[Repeated, float]]:
    """Return what is done beside answering, and how many seconds apart."""
    tasks = [
        (Repeated("policy reload", policy.poll, counters.failed), options.reload_seconds),
        (Repeated("certificate reload", certificate.poll, counters.failed), options.reload_seconds),
    ]
    if upkeep is not None and options.cluster is not None:
        every = options.cluster.poll_seconds
        tasks.append((Repeated("upkeep", upkeep.tick, counters.failed), every))
    return tasks


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
