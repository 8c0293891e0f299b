"""A replica: what it consists of, how it starts, runs and stops. Called by ``gpufence serve``."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLContext

import uvloop
from prometheus_client import disable_created_metrics

from policies.policy import Policy
from webhook.active_policy import ActivePolicy
from webhook.cluster.facts import ClusterFacts
from webhook.cluster.needs import needed_facts
from webhook.kube.client import KubeApi, ServerClock
from webhook.kube.credentials import Load
from webhook.kube.reflector import Watches
from webhook.logs import configure, event
from webhook.periodic_task import PeriodicTask
from webhook.serve.admission.handler import Admission
from webhook.serve.callers import Callers
from webhook.serve.http.edge import Edge, operations_handler
from webhook.serve.http.listener import OPERATIONS, REVIEWS, Listener, listen, port_of
from webhook.serve.http.tls import ServedCertificate
from webhook.serve.metrics.cluster import ClusterMetrics
from webhook.serve.metrics.replica import Metrics
from webhook.signals import Signals

_VERSION_SECONDS = 60.0
"""How soon a replica follows an upgrade of the control plane."""

_log = logging.getLogger("gpufence")

STALE_SECONDS = 300.0
"""After so long without a sign of the API server, a replica that others call gives way. API servers
send bookmarks each minute, and a silent watch is tried again after two and a half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of ``gpufence serve``, as plain values. Port 0 selects a free port."""

    tls_cert: Path
    tls_key: Path
    policy_name: str
    """The name of the FencePolicy to follow, or of ``policy``."""
    policy: Policy | None = None
    """A policy that stays. Without it, the replica follows the FencePolicy in ``cluster``."""
    client_ca_file: Path | None = None
    """A PEM file of CAs. If set, clients must present a certificate that one of them signed."""
    cluster: Load | None = None
    """The cluster that the replica reads, whose API servers call it."""
    with_facts: bool = False
    """Whether the policy considers the nodes, classes and claims of the cluster."""
    name: str = "gpufence"
    """The name of the webhook configurations by which API servers call the replica."""
    host: str = "0.0.0.0"  # noqa: S104 - API servers and kubelets connect to the Pod
    port: int = 9443
    metrics_port: int = 8080
    log_level: str = "info"
    drain_seconds: float = 5.0
    """How long the replica keeps serving after SIGTERM, unready, while clients learn of it."""
    reload_seconds: float = 2.0
    """The interval between two looks at the key pair."""
    timeout_seconds: float = 10.0
    """``timeoutSeconds`` of the webhook configurations: no request may take longer, so this is also
    how long the replica waits for the last ones when it stops."""


def serve(options: ServeOptions) -> int:
    """Serve until SIGTERM or SIGINT, drain, and return the exit status (0).

    A second signal ends the drain. The log goes to standard error. The event ``ready`` has the
    bound ports in ``port`` and ``metricsPort``.

    Raises:
        CertificateError: (certs) the key pair cannot be used.
        ListenError: (webhook.serve.http.listener) the replica cannot listen on an address.
        ConfigurationError: (webhook.kube.errors) the cluster's configuration cannot be read.
    """
    # Without this, every counter has a second series with its start time, which rate() ignores.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    policy = ActivePolicy(options.policy_name, options.policy)
    configure(sys.stderr, options.log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(options, policy))
    return 0


async def _serve(options: ServeOptions, policy: ActivePolicy) -> None:
    signals = Signals()
    replica = _Replica(options, policy)
    try:
        if await signals.unless_stopped(replica.start()):
            replica.start_tasks()
            await signals.first.wait()
            await replica.drain(signals)
    finally:
        await replica.close()
    event(_log, logging.INFO, "stopped")


class _Replica:
    """The parts of a replica, connected to each other. Nothing runs before ``start``."""

    def __init__(self, options: ServeOptions, policy: ActivePolicy) -> None:
        self._options = options
        self._policy = policy
        self._clock = ServerClock()
        self._serving = False
        self._metrics = Metrics(policy.current, policy.name)
        self._metrics.track("gpufence_policy_generation", lambda: policy.generation)
        self._metrics.track("gpufence_policy_stale", lambda: policy.is_stale)
        self._watches, self._facts = _cluster(options, policy, self._metrics, self._clock)
        self._admission = Admission(
            policy.current, self._metrics, lambda: self._clock.now().date(), self._facts
        )
        followed = policy.name if options.policy is None else ""
        self._edge = Edge(self._admission, self._metrics, options.timeout_seconds, followed)
        policy.followers += [self._admission.use, self._metrics.use]
        policy.count = self._metrics.policy_changed
        self._certificate = ServedCertificate(
            options.tls_cert, options.tls_key, options.client_ca_file
        )
        self._callers: Callers | None = None
        self._distrust = ""
        """Why API servers do not trust the certificate with which this replica started."""
        if options.cluster is not None:
            self._callers = Callers(KubeApi(options.cluster, self._clock), options.name)
            self._distrust = "the webhook configurations are not checked yet"
        self._metrics.track(
            "gpufence_admission_requests_in_flight", lambda: self._edge.open_requests
        )
        self._metrics.track(
            "gpufence_certificate_expiry_timestamp_seconds",
            lambda: self._certificate.leaf.ends.timestamp(),
        )
        self._listeners: list[Listener] = []
        self._tasks = self._periodic_tasks()
        self._running: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Listen on both ports, and return once the replica can answer reviews."""
        options = self._options
        if self._watches is not None:
            await self._watches.start()
        operations = listen(options.host, options.metrics_port, "metrics-port")
        pages = operations_handler(self._metrics, self._unready, self._problems)
        self._listen(Listener(pages, OPERATIONS, self._metrics.connection_rejected), operations)
        await self._policy.known.wait()
        reviews = listen(options.host, options.port, "port")
        listener = Listener(self._edge.handle, REVIEWS, self._metrics.connection_rejected)
        self._listen(listener, reviews, lambda: self._certificate.context)
        self._serving = True
        event(
            _log,
            logging.INFO,
            "ready",
            host=options.host,
            port=port_of(reviews),
            metricsPort=port_of(operations),
            policy=self._policy.name,
            mode=self._policy.current.mode,
            certificateExpires=self._certificate.leaf.ends.isoformat(),
        )

    def _listen(
        self, listener: Listener, on: socket.socket, tls: Callable[[], SSLContext] | None = None
    ) -> None:
        listener.start(on, tls)
        self._listeners.append(listener)

    def start_tasks(self) -> None:
        self._running = [asyncio.create_task(task.run_forever()) for task in self._tasks]

    async def drain(self, signals: Signals) -> None:
        """Keep serving, unready, while clients turn to other replicas; then finish all requests."""
        options = self._options
        self._edge.draining = True
        event(_log, logging.INFO, "draining", seconds=options.drain_seconds)
        with suppress(TimeoutError):
            async with asyncio.timeout(options.drain_seconds):
                await signals.second.wait()
        # aiohttp stops reading when it closes: a body that is still arriving would be lost.
        with suppress(TimeoutError):
            async with asyncio.timeout(options.timeout_seconds):
                await self._edge.finished()

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        for listener in self._listeners:
            await listener.close()
        if self._facts is not None:
            await self._facts.stop()
        elif self._watches is not None:
            await self._watches.stop()
        if self._callers is not None:
            await self._callers.api.close()

    def _unready(self) -> str:
        """Return why clients should not send requests to this replica; empty if they should."""
        if self._edge.draining:
            return "shutting down"
        if not self._policy.known.is_set():
            return f"no policy: {self._policy.problem}"
        if not self._serving:
            return "starting"
        return (
            self._certificate.invalid(self._clock.now())
            or self._distrust
            or (self._facts.unready() if self._facts else "")
            or self._gives_way()
        )

    def _gives_way(self) -> str:
        """Return why another replica, which follows the API server, should answer instead.

        A review that arrives shows that the API server works. While it is down, none arrives, and
        all replicas stay ready for its return.
        """
        heard_at = self._watches.heard_at() if self._watches else None
        return outdated(heard_at, self._edge.reviewed_at)

    def _problems(self) -> list[str]:
        """Return what an operator should look at, one line for each problem."""
        lines = [f"{task.name}: {task.problem}" for task in self._tasks if task.problem]
        if self._policy.is_stale:
            lines.append(f"policy: {self._policy.problem}")
        if unenforced := self._policy.current.unenforced:
            lines.append(unenforced)
        lost = self._watches.lost() if self._watches else []
        return lines + lost + self._unknown_facts()

    def _unknown_facts(self) -> list[str]:
        """Return what the policy needs to know of the cluster and the replica does not know."""
        if self._facts is not None:
            return self._facts.problems()
        consequences = needed_facts(self._policy.current).values()
        return [f"cluster facts are off: {'; '.join(consequences)}"] if consequences else []

    async def _reload_certificate(self) -> None:
        """Take up a new pair; become ready once API servers trust the first one."""
        distrust = self._callers.distrust if self._callers else None
        await self._certificate.poll(self._clock.now(), distrust)
        if self._distrust and distrust:
            self._distrust = await distrust(self._certificate.leaf)

    def _periodic_tasks(self) -> list[PeriodicTask]:
        seconds, failed = self._options.reload_seconds, self._metrics.task_failed
        tasks = [PeriodicTask("certificate reload", self._reload_certificate, seconds, failed)]
        if self._facts is not None:
            read = self._facts.read_version
            tasks.append(PeriodicTask("version of Kubernetes", read, _VERSION_SECONDS, failed))
        return tasks


def outdated(heard_at: float | None, reviewed_at: float) -> str:
    """Return why a replica gives way: it answers reviews, and hears nothing of the API server."""
    if heard_at is None or (seconds := reviewed_at - heard_at) < STALE_SECONDS:
        return ""
    return f"reviews arrive {seconds:.0f} s after the last sign of the API server"


def _cluster(
    options: ServeOptions, policy: ActivePolicy, metrics: Metrics, clock: ServerClock
) -> tuple[Watches | None, ClusterFacts | None]:
    """Return what the replica watches in the cluster, as the options configure it."""
    if options.cluster is None:
        return None, None
    counters = ClusterMetrics(metrics.registry)
    watches = Watches(KubeApi(options.cluster, clock), restarted=counters.watch_restarted)
    if options.policy is None:
        policy.follow(watches)
    if not options.with_facts:
        return watches, None
    facts = ClusterFacts(watches, policy.current, looked_up=counters.claim_looked_up)
    policy.followers.append(facts.use)
    counters.track(facts)
    return watches, facts
