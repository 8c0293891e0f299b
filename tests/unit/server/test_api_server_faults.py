"""The controller and the watches against each fault of the API server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fake_apiserver import (
    DEVICE_CLASSES,
    FAULTS,
    NODES,
    RUNTIME_CLASSES,
    FakeApiServer,
    Fault,
    eventually,
)
from reviewing import default_policy
from webhook.cluster.facts import ClusterFacts
from webhook.controller.certificates import SecretName
from webhook.controller.controller import Controller, ControllerOptions
from webhook.controller.metrics import ControllerMetrics
from webhook.controller.registrar import POLICY_KINDS
from webhook.controller.text.objects import POLICY_KIND, Registration
from webhook.controller.watched import Objects
from webhook.kube.client import KubeApi
from webhook.kube.credentials import Load
from webhook.kube.errors import ApiError
from webhook.kube.kubeconfig import kubeconfig
from webhook.kube.listing import list_all
from webhook.kube.reflector import Watches, WatchTiming
from webhook.kube.writer import KubeWriter
from webhook.periodic_task import PeriodicTask
from webhook.registered import KINDS

FAST = WatchTiming(first_delay=0.01, longest_delay=0.05, quiet_seconds=0.5, steady_seconds=1)


CA, SERVING = SecretName("system", "ca"), SecretName("system", "serving")


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    classes = (DEVICE_CLASSES, RUNTIME_CLASSES)
    api = FakeApiServer(NODES, *classes, CA.collection, POLICY_KINDS[POLICY_KIND])
    api.put(NODES, {"metadata": {"name": "gpu-1", "labels": {}}})
    await api.start()
    yield api
    await api.stop()


@pytest.fixture
def load(api: FakeApiServer, tmp_path: Path) -> Load:
    return kubeconfig(api.kubeconfig(tmp_path / "kubeconfig"))


@pytest.fixture
async def controller(api: FakeApiServer, load: Load) -> AsyncIterator[Controller]:
    """A controller that has issued and registered."""
    options = ControllerOptions(
        load=load,
        registration=Registration(url="https://localhost:1"),
        serving_secret=SERVING,
        ca_secret=CA,
        admission_policies=False,
    )
    writer = KubeWriter(load)
    watches = Watches(writer, timing=FAST)
    objects = Objects(watches, lambda: None)
    controller = Controller(options, writer, objects, default_policy, ControllerMetrics())
    await watches.start()
    await eventually(lambda: not watches.missing(), "the lists")
    await controller.keep_certificates()
    await controller.register()
    await eventually(lambda: sum(map(api.watching, WATCHED)) == len(watches.objects()), "watches")
    yield controller
    await watches.stop()


WATCHED = (*KINDS.values(), POLICY_KINDS[POLICY_KIND], CA.collection)
EACH = pytest.mark.parametrize("fault", FAULTS)

ATTEMPTS: dict[Fault, int] = {"server error": 5, "reset": 5}
"""How many attempts a fault outlasts, if more than one: those that are not delayed themselves."""


@EACH
async def test_a_controller_repairs_what_others_change_during_a_fault_and_polls_nothing(
    fault: Fault, api: FakeApiServer, controller: Controller
) -> None:
    def content() -> list[Any]:
        return [(path, each.get("data"), each.get("webhooks")) for path, each in objects.items()]

    objects = api.objects
    before = content()
    tasks = [
        PeriodicTask("certificates", controller.keep_certificates, 0.05),
        PeriodicTask("registration", controller.register, 0.05),
    ]
    running = [asyncio.create_task(task.run_forever()) for task in tasks]
    with api.failing(fault):
        for collection in KINDS.values():
            api.put(collection, {"metadata": {"name": "gpufence"}, "webhooks": []})
        edited = content()
        if fault not in ("delay", "silence"):
            await eventually(lambda: tasks[1].problem, "the problem")
            assert content() == edited
    await eventually(lambda: content() == before, "the repair")
    await eventually(lambda: not any(task.problem for task in tasks), "the end of the problem")
    await eventually(lambda: sum(map(api.watching, WATCHED)) == 6, "all watches")
    # On a busy machine, a watch can seem silent, and begins again.
    sent = [each for each in api.requests if not each.is_watch]
    for step in (controller.keep_certificates, controller.register) * 3:
        await step()
    assert [each for each in api.requests if not each.is_watch] == sent
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


@EACH
async def test_a_fault_during_a_watch_causes_no_relist(
    fault: Fault, api: FakeApiServer, load: Load
) -> None:
    facts = ClusterFacts(Watches(KubeApi(load), timing=FAST), default_policy())
    await facts.start()
    await eventually(lambda: not facts.unready() and api.watching(NODES) == 1, "the watch")
    with api.failing(fault):
        api.put(NODES, {"metadata": {"name": "gpu-2", "labels": {}}})
        # The reflector begins again after `quiet_seconds` at the latest.
        attempts = len(api.watches(NODES)) + ATTEMPTS.get(fault, 1)
        await eventually(lambda: len(api.watches(NODES)) >= attempts, "attempts")
        assert not facts.unready()
        # What is known stays.
        assert facts.watches.objects()["nodes"] >= 1
    await eventually(lambda: facts.watches.objects()["nodes"] == 2, "the new node")
    # Other collections stay silent for so long that they are listed again on a slow machine.
    assert len(api.lists(NODES)) == 1
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
