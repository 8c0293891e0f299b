"""What the workers of a replica answer together: /healthz, /readyz and /metrics of all of them.

Whichever worker is asked asks every one, itself included, where it answers for itself alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from aiohttp import ClientError, ClientSession, ClientTimeout, hdrs, web
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from webhook.metrics.admission import expose

LOOPBACK = "127.0.0.1"
"""Where each worker answers for itself."""

# Within the shortest timeout of the chart's probes, 2 s.
_TIMEOUT = ClientTimeout(total=1.5)

_SILENT = "does not answer"


def gathered_app(ports: Sequence[int]) -> web.Application:
    """Return the application for kubelets and Prometheus, for the workers at ``ports`` on loopback.

    ``/healthz`` and ``/readyz`` are as the worst of them, and say which. In ``/metrics``, every
    series has the label ``worker``, and ``gpufence_worker_up`` tells of those that say nothing.
    """

    async def judge(request: web.Request) -> web.Response:
        answers = await _ask(ports, request.path)
        good = all(status == web.HTTPOk.status_code for status, _ in answers)
        lines = ["ok"] * good + [
            f"worker {worker}: {line}"
            for worker, (_, text) in enumerate(answers)
            for line in text.splitlines()
            if line != "ok"
        ]
        return web.Response(text="\n".join(lines) + "\n", status=200 if good else 503)

    async def metrics(request: web.Request) -> web.Response:
        registry = CollectorRegistry()
        registry.register(GatheredMetrics(await _ask(ports, request.path)))
        # In a thread: 30 us a series, of thousands where the estate is large, are too long to keep
        # reviews waiting.
        accept = request.headers.get(hdrs.ACCEPT, "")
        body, content_type = await asyncio.to_thread(expose, registry, accept)
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: content_type})

    app = web.Application()
    app.router.add_get("/healthz", judge)
    app.router.add_get("/readyz", judge)
    app.router.add_get("/metrics", metrics)
    return app


async def _ask(ports: Iterable[int], path: str) -> list[tuple[int, str]]:
    """Return status and text of every worker's answer; that of none is 503."""

    async def ask(port: int) -> tuple[int, str]:
        try:
            async with session.get(f"http://{LOOPBACK}:{port}{path}") as response:
                return response.status, await response.text()
        except (ClientError, TimeoutError):
            return web.HTTPServiceUnavailable.status_code, _SILENT

    async with ClientSession(timeout=_TIMEOUT) as session:
        return await asyncio.gather(*map(ask, ports))


class GatheredMetrics(Collector):
    """The metrics of all workers, from what each of them answered: status and text."""

    def __init__(self, answers: Sequence[tuple[int, str]]) -> None:
        self._answers = answers

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(
            "gpufence_worker_up",
            "1 for each process of a replica that answers, of several (--workers).",
            labels=("worker",),
        )
        families: dict[str, Metric] = {}
        for worker, (status, text) in enumerate(self._answers):
            answers = status == web.HTTPOk.status_code
            up.add_metric((str(worker),), answers)
            for family in text_string_to_metric_families(text) if answers else ():
                whole = families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    labels = {**sample.labels, "worker": str(worker)}
                    whole.add_sample(sample.name, labels, sample.value)
        yield up
        yield from families.values()
