"""The controller and the watches against each fault of the API server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fake_apiserver import FAULTS, NODES, FakeApiServer, Fault, eventually
from reviewing import default_policy
from webhook.cluster.facts import ClusterFacts
from webhook.controller.certificates import SecretName
from webhook.controller.controller import Controller, ControllerOptions
from webhook.controller.metrics import ControllerMetrics
from webhook.controller.text.objects import Registration
from webhook.kube.client import KubeApi
from webhook.kube.credentials import Load
from webhook.kube.errors import ApiError
from webhook.kube.kubeconfig import kubeconfig
from webhook.kube.listing import list_all
from webhook.kube.reflector import Watches, WatchTiming
from webhook.periodic_task import PeriodicTask

FAST = WatchTiming(first_delay=0.01, longest_delay=0.05, quiet_seconds=0.5, steady_seconds=1)


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    api = FakeApiServer(NODES, "/apis/resource.k8s.io/v1/deviceclasses")
    api.put(NODES, {"metadata": {"name": "gpu-1", "labels": {}}})
    await api.start()
    yield api
    await api.stop()


@pytest.fixture
def load(api: FakeApiServer, tmp_path: Path) -> Load:
    return kubeconfig(api.kubeconfig(tmp_path / "kubeconfig"))


@pytest.fixture
async def controller(load: Load) -> AsyncIterator[Controller]:
    """A controller that has issued and registered."""
    options = ControllerOptions(
        load=load,
        registration=Registration(url="https://localhost:1"),
        serving_secret=SecretName("system", "serving"),
        ca_secret=SecretName("system", "ca"),
    )
    controller = Controller(options, default_policy, ControllerMetrics())
    await controller.keep_certificates()
    await controller.register()
    yield controller
    await controller.close()


EACH = pytest.mark.parametrize("fault", FAULTS)

ATTEMPTS: dict[Fault, int] = {"server error": 5, "reset": 5}
"""How many attempts a fault outlasts, if more than one: those that are not delayed themselves."""


@EACH
async def test_a_controller_keeps_all_objects_during_a_fault(
    fault: Fault, api: FakeApiServer, controller: Controller
) -> None:
    def reads() -> int:
        """Return how many reads of Secrets there were."""
        return sum("/secrets/" in each.path and each.method == "GET" for each in api.requests)

    before = dict(api.objects)
    tasks = [
        PeriodicTask("certificates", controller.keep_certificates, 0.05),
        PeriodicTask("registration", controller.register, 0.05),
    ]
    with api.failing(fault):
        running = [asyncio.create_task(task.run_forever()) for task in tasks]
        attempts = reads() + ATTEMPTS.get(fault, 1)
        await eventually(lambda: reads() >= attempts, "attempts")
        if fault not in ("delay", "silence"):
            await eventually(lambda: all(task.problem for task in tasks), "the problems")
    during = reads()
    await eventually(lambda: reads() > during + 1, "further rounds")
    await eventually(lambda: not any(task.problem for task in tasks), "the end of the problem")
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert api.objects == before


@EACH
async def test_a_fault_during_a_watch_causes_no_relist(
    fault: Fault, api: FakeApiServer, load: Load
) -> None:
    facts = ClusterFacts(Watches(KubeApi(load), timing=FAST), default_policy())
    await facts.start()
    await eventually(lambda: not facts.unready() and api.watching(NODES) == 1, "the watch")
    lists = [each for each in api.requests if not each.is_watch]
    with api.failing(fault):
        api.put(NODES, {"metadata": {"name": "gpu-2", "labels": {}}})
        # The reflector begins again after `quiet_seconds` at the latest.
        attempts = len(api.watches(NODES)) + ATTEMPTS.get(fault, 1)
        await eventually(lambda: len(api.watches(NODES)) >= attempts, "attempts")
        assert not facts.unready()
        # What is known stays.
        assert facts.watches.objects()["nodes"] >= 1
    await eventually(lambda: facts.watches.objects()["nodes"] == 2, "the new node")
    assert [each for each in api.requests if not each.is_watch] == lists
    await facts.stop()


async def test_retry_after_of_a_429_response_is_honored(api: FakeApiServer, load: Load) -> None:
    """429 with ``Retry-After: 1`` leads to one request a second, and not to one each 50 ms."""
    facts = ClusterFacts(Watches(KubeApi(load), timing=FAST), default_policy())
    start = time.monotonic()
    with api.failing("too many requests"):
        await facts.start()
        await eventually(lambda: api.lists(NODES), "the first request")
    await eventually(lambda: not facts.unready(), "the list")
    assert time.monotonic() - start >= 1
    assert len(api.lists(NODES)) == 2
    await facts.stop()


async def test_list_all_fails_if_the_api_server_keeps_returning_429(
    api: FakeApiServer, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.kube.pages.spread", lambda _seconds: 0.01)
    connection = KubeApi(load)
    with api.failing("too many requests"), pytest.raises(ApiError, match="too many requests"):
        await list_all(connection, NODES, dict[str, Any], lambda obj: obj)
    assert len(api.lists(NODES)) > 1
    await connection.close()
