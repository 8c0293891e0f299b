"""The controller as a process: how it starts, runs and stops. Called by ``gpufence controller``."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prometheus_client import disable_created_metrics

from policies.kubernetes.nodes import NodeIndex
from policies.policy import Policy
from webhook.active_policy import ActivePolicy
from webhook.controller.controller import Controller, ControllerOptions
from webhook.controller.metrics import ControllerMetrics
from webhook.controller.pages import Pages
from webhook.controller.policy_status import publish, registered
from webhook.controller.watched import Objects
from webhook.devices.classes import DEVICE_CLASSES
from webhook.devices.nodes import NODES
from webhook.devices.offers import Offers
from webhook.devices.slices import RESOURCE_SLICES
from webhook.kube.collection import Collection
from webhook.kube.errors import ClusterError
from webhook.kube.reflector import Watches
from webhook.kube.writer import KubeWriter
from webhook.logs import configure, event
from webhook.periodic_task import PeriodicTask
from webhook.signals import Signals

_PAUSE = 0.1
"""Seconds between two rounds: another client may change an object whenever it is repaired."""

_OF_NODES: tuple[Collection[Any], ...] = (NODES, DEVICE_CLASSES, RESOURCE_SLICES)
"""What tells which nodes have devices. DeviceTaintRules change only how many a Pod can get."""
_NAMES_OF_NODES = {collection.name for collection in _OF_NODES}

_log = logging.getLogger("gpufence")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    """The options of ``gpufence controller``, as plain values. Port 0 selects a free port."""

    controller: ControllerOptions
    policy_name: str
    """The name of the FencePolicy to follow, or of ``policy``."""
    policy: Policy | None = None
    """A policy that stays. Without it, the controller follows the FencePolicy."""
    host: str = "0.0.0.0"  # noqa: S104 - kubelets and Prometheus connect to the Pod
    metrics_port: int = 8080
    log_level: str = "info"
    poll_seconds: float = 5.0
    """The interval between two rounds without a change: time passes."""


def run(options: ProcessOptions) -> int:
    """Run until SIGTERM or SIGINT, and return the exit status (0).

    The log goes to standard error. The event ``running`` has the bound port in ``metricsPort``.

    Raises:
        OSError: the process cannot listen on its address.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]
    policy = ActivePolicy(options.policy_name, options.policy)
    configure(sys.stderr, options.log_level)
    asyncio.run(_run(options, policy))
    return 0


async def _run(options: ProcessOptions, policy: ActivePolicy) -> None:
    signals = Signals()
    process = _Process(options, policy)
    try:
        if await signals.unless_stopped(process.start()):
            await signals.first.wait()
    finally:
        await process.close()
    event(_log, logging.INFO, "stopped")


class _Process:
    """The parts of the process, connected to each other. Nothing runs before ``start``."""

    def __init__(self, options: ProcessOptions, policy: ActivePolicy) -> None:
        self._options = options
        self._policy = policy
        self._metrics = ControllerMetrics()
        self._api = KubeWriter(options.controller.load)
        self._watches = Watches(self._api)
        if options.policy is None:
            policy.follow(self._watches)
        self._offers = Offers(policy.current, lambda: self._watches.relist(RESOURCE_SLICES))
        if options.controller.registration.with_nodes:
            for collection in _OF_NODES:
                self._watches.need(collection, self._offers.stores[collection])
        self._objects = Objects(self._watches, self._wake)
        self._controller = Controller(
            options.controller, self._api, self._objects, lambda: policy.current, self._metrics
        )
        self._registration = self._task("registration", self._register, options.poll_seconds)
        self._certificates = self._task(
            "certificates", self._keep_certificates, options.poll_seconds
        )
        self._status = self._task("policy status", self._publish, options.poll_seconds)
        policy.followers.append(self._follow)
        policy.count = lambda _is_applied: self._status.wake()
        self._tasks = (self._certificates, self._registration, self._status)
        self._registered: Policy | None = None
        self._running: list[asyncio.Task[None]] = []
        self._pages: Pages | None = None

    async def start(self) -> None:
        """Listen, and start what runs periodically."""
        options = self._options
        self._pages = Pages(options.host, options.metrics_port, self._metrics.registry, self._state)
        await self._watches.start()
        self._running = [asyncio.create_task(self._run(task)) for task in self._tasks]
        event(_log, logging.INFO, "running", metricsPort=self._pages.port)

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._watches.stop()
        if self._pages is not None:
            self._pages.close()

    def _task(self, name: str, step: Callable[[], object], seconds: float) -> PeriodicTask:
        return PeriodicTask(
            name,
            step,
            seconds,
            failed=self._metrics.task_failed,
            succeeded=self._metrics.task_succeeded,
            pause=_PAUSE,
        )

    async def _run(self, task: PeriodicTask) -> None:
        """Run a task once each watch has listed its object, or has failed to."""
        while self._watches.missing().keys() - _NAMES_OF_NODES - self._watches.problems().keys():  # noqa: ASYNC110
            await asyncio.sleep(_PAUSE)
        await task.run_forever()

    def _wake(self) -> None:
        self._certificates.wake()
        self._registration.wake()

    async def _keep_certificates(self) -> None:
        if await self._controller.keep_certificates():
            self._registration.wake()

    async def _register(self) -> None:
        if not self._policy.known.is_set():
            raise ClusterError(f"not registered yet: {self._policy.problem}")
        policy = self._policy.current
        try:
            await self._controller.register()
            self._registered = policy
        finally:
            self._status.wake()

    async def _publish(self) -> None:
        """Write the status of the policy: this runs after each change of it, and each round."""
        if self._options.policy is None:
            problem = self._registration.problem
            if not problem and self._registered is not self._policy.current:
                problem = "not registered yet"
            drift = self._controller.registrar.drift(self._api.clock.now())
            await publish(self._api, self._policy, registered(problem, *drift), self._nodes())

    def _follow(self, policy: Policy) -> None:
        """Register what follows from a new policy."""
        if self._offers.nodes.use(policy) and self._options.controller.registration.with_nodes:
            self._watches.relist(NODES)
        self._registration.wake()

    def _nodes(self) -> NodeIndex | None:
        """Return the nodes, once they and their devices are listed."""
        return self._offers.nodes.index if self._watches.listed >= _NAMES_OF_NODES else None

    def _state(self) -> tuple[bool, list[str]]:
        """Return whether every task has succeeded once, and what does not succeed now."""
        problems = [f"{task.name}: {task.problem}" for task in self._tasks if task.problem]
        if self._policy.is_stale:
            problems.append(f"policy: {self._policy.problem}")
        return all(task.has_succeeded for task in self._tasks), problems
