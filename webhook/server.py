"""The running server: TLS, both listeners, the drain. What `gpufence serve` calls."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import uvloop
from prometheus_client import disable_created_metrics

from certs.reload import Outcome, ReloadingContext
from policies.compiled import Policy
from webhook.admission import Admission
from webhook.app import admission_app, operations_app
from webhook.lifecycle import Lifecycle
from webhook.listen import Listeners
from webhook.logs import LogFormat, configure, event
from webhook.metrics import Metrics

_log = logging.getLogger("gpufence")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Everything that the server is told, as plain values.

    ``policy`` is compiled; ``policy_name`` is what it is called in the log and in the metrics (the
    file's path, or ``default``). Port 0 takes a free one. ``drain_seconds`` is how long the server
    goes on serving after SIGTERM, already not ready, so that whoever sends it requests can learn
    so; ``grace_seconds`` how long it then waits for requests that are under way.
    ``reload_seconds`` is how often the key pair's files are looked at.
    """

    policy: Policy
    tls_cert: Path
    tls_key: Path
    policy_name: str = "default"
    host: str = "0.0.0.0"  # noqa: S104 - a Pod is reached on its own address
    port: int = 9443
    metrics_host: str = "0.0.0.0"  # noqa: S104 - the kubelet probes it there
    metrics_port: int = 8080
    drain_seconds: float = 5.0
    grace_seconds: float = 10.0
    reload_seconds: float = 10.0
    log_format: LogFormat = "json"


def serve(options: ServeOptions) -> int:
    """Serve until SIGTERM or SIGINT, drain, and return the exit status (0).

    A second signal cuts the drain short. Logs go to standard error. The line with
    ``"event": "ready"`` carries the ports that were bound, as ``port`` and ``metricsPort``.

    Raises:
        CertificateError: (certs.errors) the key pair cannot be used; nothing listens yet.
        ListenError: (webhook.listen) an address cannot be listened on.
    """
    configure(options.log_format, sys.stderr)
    # When each counter began is a second series for every one of them, and of no use to rate().
    disable_created_metrics()  # type: ignore[no-untyped-call]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(options))
    return 0


async def _serve(options: ServeOptions) -> None:
    certificate = ReloadingContext(options.tls_cert, options.tls_key, _now())
    metrics = Metrics(options.policy, options.policy_name)
    metrics.track_certificate(lambda: certificate.expires.timestamp())
    lifecycle = Lifecycle()
    admission = Admission(options.policy, metrics, today=lambda: _now().date())
    reviews = admission_app(admission, metrics, lifecycle)
    operations = operations_app(metrics, lambda: _unready(lifecycle, certificate))
    stopping = _Signals()

    listeners = Listeners()
    reloading = asyncio.create_task(_keep_reloading(certificate, options.reload_seconds))
    try:
        # The plain port first: there a probe can see that the other one is not served yet.
        metrics_port = await listeners.listen(
            operations, options.metrics_host, options.metrics_port, "metrics-port"
        )
        port = await listeners.listen(
            reviews, options.host, options.port, "port", certificate.ssl_context
        )
        lifecycle.serving = True
        event(
            _log,
            logging.INFO,
            "ready",
            host=options.host,
            port=port,
            metricsHost=options.metrics_host,
            metricsPort=metrics_port,
            policy=options.policy_name,
            certificateExpires=certificate.expires.isoformat(),
        )
        await stopping.first.wait()
        await _drain(lifecycle, stopping, options)
    finally:
        reloading.cancel()
        await listeners.close()
    event(_log, logging.INFO, "stopped")


async def _drain(lifecycle: Lifecycle, stopping: _Signals, options: ServeOptions) -> None:
    """Go on serving, unready, until nobody should send requests any more; then finish them."""
    lifecycle.draining = True
    event(_log, logging.INFO, "draining", seconds=options.drain_seconds)
    await _wait(stopping.second.wait, options.drain_seconds)
    # aiohttp reads no further once it cleans up: a body that is still arriving would be lost.
    await _wait(lifecycle.finished, options.grace_seconds)


async def _wait(what: Callable[[], Awaitable[object]], seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await what()
    except TimeoutError:
        return


class _Signals:
    """SIGTERM and SIGINT as events: the first asks for an end, the second for a quick one."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._caught)

    def _caught(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


async def _keep_reloading(certificate: ReloadingContext, seconds: float) -> None:
    """Look at the key pair's files for good, and say what is new."""
    last = None
    while True:
        await asyncio.sleep(seconds)
        try:
            poll = certificate.poll(_now())
        except Exception:
            event(_log, logging.ERROR, "certificate not looked at", failure=True)
            continue
        if poll != last and poll.outcome is not Outcome.UNCHANGED:
            refused = poll.outcome is Outcome.REFUSED
            level = logging.WARNING if refused else logging.INFO
            event(_log, level, f"certificate {poll.outcome}", detail=poll.reason)
        last = poll


def _unready(lifecycle: Lifecycle, certificate: ReloadingContext) -> str:
    if reason := lifecycle.unready():
        return reason
    if certificate.expires <= _now():
        return f"the serving certificate expired at {certificate.expires.isoformat()}"
    return ""


def _now() -> datetime:
    return datetime.now(UTC)
