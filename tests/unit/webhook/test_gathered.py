"""What several workers answer as one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import (
    CollectorRegistry,
    Counter,
    disable_created_metrics,
    enable_created_metrics,
)
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from deploy.series import of_one_process
from reviewing import default_policy
from served import Client
from webhook.http.edge import operations_app
from webhook.metrics.admission import Metrics
from webhook.metrics.gathered import gathered_app

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Worker = tuple[CollectorRegistry, str, list[str]]
"""The metrics of a worker, why it is not ready, and its troubles."""

Gather = Callable[..., Awaitable[Client]]


@pytest.fixture
def _as_a_server_exposes() -> Iterator[None]:
    """Leave out when each counter began, as a server does."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    yield
    enable_created_metrics()  # type: ignore[no-untyped-call]


@pytest.fixture
async def gather() -> AsyncIterator[Gather]:
    """Return what serves workers and the application that gathers what they say."""
    async with AsyncExitStack() as stack:

        async def gathered(*workers: Worker) -> Client:
            servers = [TestServer(_application(*worker)) for worker in workers]
            for server in servers:
                await stack.enter_async_context(server)
            ports = [server.port for server in servers if server.port]
            client = TestClient(TestServer(gathered_app(ports)))
            return await stack.enter_async_context(client)

        yield gathered


def _application(known: CollectorRegistry, unready: str, troubles: list[str]) -> web.Application:
    metrics = Metrics(default_policy(), "test")
    metrics.registry = known
    return operations_app(metrics, lambda: unready, lambda: troubles)


def worker(unready: str = "", *troubles: str) -> Worker:
    return CollectorRegistry(), unready, list(troubles)


@pytest.mark.parametrize(
    ("workers", "status", "text"),
    [
        ([worker(), worker()], 200, "ok\n"),
        ([worker(), worker("starting")], 503, "worker 1: starting\n"),
        (
            [worker("", "upkeep: refused"), worker("", "upkeep: refused")],
            200,
            "ok\nworker 0: upkeep: refused\nworker 1: upkeep: refused\n",
        ),
        (
            [worker("", "upkeep: refused"), worker("starting")],
            503,
            "worker 0: upkeep: refused\nworker 1: starting\n",
        ),
    ],
)
async def test_a_replica_is_ready_when_each_of_its_workers_is(
    gather: Gather, workers: list[Worker], status: int, text: str
) -> None:
    client = await gather(*workers)
    async with client.get("/readyz") as response:
        assert (response.status, await response.text()) == (status, text)


@pytest.mark.usefixtures("_as_a_server_exposes")
@pytest.mark.parametrize(("accept", "parse"), [("", parse_text), (OPENMETRICS, parse_openmetrics)])
async def test_no_series_of_any_worker_is_lost_in_either_format(
    gather: Gather, accept: str, parse: Callable[[str], list[Metric]]
) -> None:
    everything = [of_one_process(), of_one_process()]
    for number, known in enumerate(everything):
        counter = Counter("gpufence_told_apart", "By its value.", ("odd",), registry=known)
        counter.labels('a "quoted"\nname\\').inc(number + 1)
    client = await gather(*((known, "", []) for known in everything))
    async with client.get("/metrics", headers={"Accept": accept}) as response:
        text = await response.text()
    told = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in parse(text)
        for sample in family.samples
    }
    for number, known in enumerate(everything):
        for family in known.collect():
            for sample in family.samples:
                if sample.name.startswith("gpufence_"):
                    labels = {**sample.labels, "worker": str(number)}
                    # Of what is told by the clock, a moment has passed.
                    value = pytest.approx(sample.value, rel=1e-6)
                    assert told[sample.name, *sorted(labels.items())] == value
