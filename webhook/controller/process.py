"""The controller as a process: how it starts, runs and stops. Called by ``gpufence controller``."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import disable_created_metrics

from policies.policy import Policy
from webhook.controller.controller import Controller, ControllerOptions
from webhook.controller.metrics import ControllerMetrics
from webhook.controller.pages import Pages
from webhook.logs import JSONFormatter, TextFormatter, configure, event
from webhook.periodic_task import PeriodicTask
from webhook.policy_reload import ReloadingPolicy
from webhook.signals import Signals

_log = logging.getLogger("gpufence")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    """The options of ``gpufence controller``, as plain values. Port 0 selects a free port."""

    controller: ControllerOptions
    policy: str | None = None
    """The path of the policy file, or ``-`` for standard input. Without it, the default policy."""
    host: str = "0.0.0.0"  # noqa: S104 - kubelets and Prometheus connect to the Pod
    metrics_port: int = 8080
    poll_seconds: float = 5.0
    """The interval between two rounds."""
    reload_seconds: float = 2.0
    """The interval between two looks at the policy."""


def run(options: ProcessOptions) -> int:
    """Run until SIGTERM or SIGINT, and return the exit status (0).

    The log goes to standard error, as text to a terminal and as JSON otherwise. The event
    ``running`` has the bound port in ``metricsPort``.

    Raises:
        InputError: (webhook.tools.documents.document) the policy cannot be read or is invalid.
        OSError: the process cannot listen on its address.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]
    policy = ReloadingPolicy(options.policy)
    configure(TextFormatter() if sys.stderr.isatty() else JSONFormatter(), sys.stderr)
    asyncio.run(_run(options, policy))
    return 0


async def _run(options: ProcessOptions, policy: ReloadingPolicy) -> None:
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

    def __init__(self, options: ProcessOptions, policy: ReloadingPolicy) -> None:
        self._options = options
        self._metrics = ControllerMetrics()
        self._controller = Controller(options.controller, lambda: policy.current, self._metrics)
        self._policy_reload = self._task("policy reload", policy.poll, options.reload_seconds)
        self._registration = self._task(
            "registration", self._controller.register, options.poll_seconds
        )
        self._certificates = self._task(
            "certificates", self._keep_certificates, options.poll_seconds
        )
        policy.followers += [self._follow]
        self._tasks = (self._policy_reload, self._certificates, self._registration)
        self._running: list[asyncio.Task[None]] = []
        self._pages: Pages | None = None

    async def start(self) -> None:
        """Listen, and start what runs periodically."""
        options = self._options
        self._pages = Pages(options.host, options.metrics_port, self._metrics.registry, self._state)
        self._running = [asyncio.create_task(task.run_forever()) for task in self._tasks]
        event(_log, logging.INFO, "running", metricsPort=self._pages.port)

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._controller.close()
        if self._pages is not None:
            self._pages.close()

    def _task(self, name: str, step: Callable[[], object], seconds: float) -> PeriodicTask:
        return PeriodicTask(
            name,
            step,
            seconds,
            failed=self._metrics.task_failed,
            succeeded=self._metrics.task_succeeded,
        )

    async def _keep_certificates(self) -> None:
        if await self._controller.keep_certificates():
            self._registration.wake()

    def _follow(self, _policy: Policy) -> None:
        """Register what follows from a new policy."""
        self._registration.wake()

    def _state(self) -> tuple[bool, list[str]]:
        """Return whether every task has succeeded once, and what does not succeed now."""
        problems = [f"{task.name}: {task.problem}" for task in self._tasks if task.problem]
        return all(task.has_succeeded for task in self._tasks), problems
