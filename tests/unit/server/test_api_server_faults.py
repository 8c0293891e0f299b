"""Each controller of a replica against each fault of its API server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fake_apiserver import NODES, FakeApiServer, eventually
from fault_proxy import FAULTS, Fault, FaultProxy
from reviewing import default_policy
from webhook.controller.cel.configurations import Registration
from webhook.controller.certificates import SecretName
from webhook.controller.controller import ControllerOptions, RegistrationController
from webhook.controller.leader_election import lease_path
from webhook.kube.client import KubeApi
from webhook.kube.credentials import Load, kubeconfig
from webhook.kube.errors import ApiError
from webhook.kube.listing import list_all
from webhook.kube.reflector import Watches, WatchTiming
from webhook.periodic_task import PeriodicTask
from webhook.serve.cluster.facts import ClusterFacts
from webhook.serve.metrics.replica import Metrics

LEASE = lease_path("system", "gpufence")
FAST = WatchTiming(first_delay=0.01, longest_delay=0.05, quiet_seconds=0.5, steady_seconds=1)


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    api = FakeApiServer(NODES, "/apis/resource.k8s.io/v1/deviceclasses")
    api.put(NODES, {"metadata": {"name": "gpu-1", "labels": {}}})
    await api.start()
    yield api
    await api.stop()


@pytest.fixture
async def proxy(api: FakeApiServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(api.url, delay_seconds=0.1) as proxy:
        yield proxy


@pytest.fixture
def load(api: FakeApiServer, proxy: FaultProxy, tmp_path: Path) -> Load:
    config = api.kubeconfig(tmp_path / "kubeconfig")
    config.write_text(config.read_text().replace(api.url, proxy.url))
    return kubeconfig(config)


def registration_controller(load: Load, lease: int) -> RegistrationController:
    options = ControllerOptions(
        load=load,
        namespace="system",
        registration=Registration(url="https://localhost:1"),
        secret=SecretName("system", "certificates"),
        lease_seconds=lease,
    )
    metrics = Metrics(default_policy(), "test")
    return RegistrationController(options, default_policy, metrics, lambda: True)


@pytest.fixture
async def controller(load: Load) -> AsyncIterator[RegistrationController]:
    """A controller that leads, and has registered."""
    controller = registration_controller(load, 60)
    await controller.elect()
    await controller.reconcile()
    yield controller
    await controller.close()


EACH = pytest.mark.parametrize("fault", FAULTS)

ATTEMPTS: dict[Fault, int] = {"server error": 5, "reset": 5}
"""How many attempts a fault outlasts, if more than one: those that are not delayed themselves."""


@EACH
async def test_a_leader_keeps_its_lease_and_all_objects_during_a_fault(
    fault: Fault, api: FakeApiServer, proxy: FaultProxy, controller: RegistrationController
) -> None:
    before = dict(api.objects)
    tasks = [
        PeriodicTask("leader election", controller.elect, 0.05),
        PeriodicTask("registration", controller.reconcile, 0.05),
    ]
    proxy.begin(fault)
    running = [asyncio.create_task(task.run_forever()) for task in tasks]
    attempts = proxy.requests["GET leases"] + ATTEMPTS.get(fault, 1)
    await eventually(lambda: proxy.requests["GET leases"] >= attempts, "attempts")
    if fault not in ("delay", "silence"):
        await eventually(lambda: all(task.problem for task in tasks), "the problems")
    assert controller.is_leader
    proxy.end()
    renewals = proxy.requests["PUT leases"]
    await eventually(lambda: proxy.requests["PUT leases"] > renewals + 1, "renewals")
    await eventually(lambda: not any(task.problem for task in tasks), "the end of the problem")
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert controller.is_leader
    assert api.objects[LEASE]["spec"]["leaseTransitions"] == 0
    assert {path: obj for path, obj in api.objects.items() if path != LEASE} == {
        path: obj for path, obj in before.items() if path != LEASE
    }


async def test_a_leader_keeps_its_lease_while_all_responses_are_delayed(
    api: FakeApiServer, proxy: FaultProxy, load: Load
) -> None:
    """The registrations take longer than the renew deadline, which is 4 s."""
    controller = registration_controller(load, 6)
    await controller.elect()
    proxy.begin("delay")

    start = time.monotonic()

    async def register() -> None:
        while time.monotonic() < start + 4:
            await controller.reconcile()

    registering = asyncio.create_task(register())
    renewing = asyncio.create_task(
        PeriodicTask("leader election", controller.elect, 0.1).run_forever()
    )
    while not registering.done():
        assert controller.is_leader
        await asyncio.sleep(0.01)
    renewing.cancel()
    await asyncio.gather(registering, renewing, return_exceptions=True)
    proxy.end()
    await controller.close()


@EACH
async def test_a_fault_during_a_watch_causes_no_relist(
    fault: Fault, api: FakeApiServer, proxy: FaultProxy, load: Load
) -> None:
    facts = ClusterFacts(Watches(KubeApi(load), timing=FAST), default_policy())
    await facts.start()
    await eventually(lambda: not facts.unready() and api.watching(NODES) == 1, "the watch")
    lists = {name: n for name, n in proxy.requests.items() if name.startswith("LIST")}
    proxy.begin(fault)
    api.put(NODES, {"metadata": {"name": "gpu-2", "labels": {}}})
    # The reflector begins again after `quiet_seconds` at the latest.
    attempts = proxy.requests["WATCH nodes"] + ATTEMPTS.get(fault, 1)
    await eventually(lambda: proxy.requests["WATCH nodes"] >= attempts, "attempts")
    assert not facts.unready()
    # What is known stays.
    assert facts.watches.objects()["nodes"] >= 1
    proxy.end()
    await eventually(lambda: facts.watches.objects()["nodes"] == 2, "the new node")
    assert {name: n for name, n in proxy.requests.items() if name.startswith("LIST")} == lists
    await facts.stop()


async def test_retry_after_of_a_429_response_is_honored(
    api: FakeApiServer, proxy: FaultProxy, load: Load
) -> None:
    """429 with ``Retry-After: 1`` leads to one request a second, and not to one each 50 ms."""
    facts = ClusterFacts(Watches(KubeApi(load), timing=FAST), default_policy())
    proxy.begin("too many requests")
    start = time.monotonic()
    await facts.start()
    await eventually(lambda: proxy.requests["LIST nodes"], "the first request")
    proxy.end()
    await eventually(lambda: not facts.unready(), "the list")
    assert time.monotonic() - start >= 1
    assert proxy.requests["LIST nodes"] == 2
    await facts.stop()


async def test_list_all_retries_while_the_api_server_returns_429(
    proxy: FaultProxy, load: Load
) -> None:
    """Of an audit, for example, which would fail as a whole."""
    proxy.begin("too many requests")
    connection = KubeApi(load)
    names = list_all(connection, NODES, dict[str, Any], lambda obj: obj["metadata"]["name"])
    listing = asyncio.create_task(names)
    await eventually(lambda: proxy.requests["LIST nodes"] == 1, "the request")
    proxy.end()
    assert await listing == ["gpu-1"]
    await connection.close()


async def test_list_all_fails_if_the_api_server_keeps_returning_429(
    proxy: FaultProxy, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.kube.listing.spread", lambda _seconds: 0.01)
    proxy.begin("too many requests")
    connection = KubeApi(load)
    with pytest.raises(ApiError, match="too many requests"):
        await list_all(connection, NODES, dict[str, Any], lambda obj: obj)
    assert proxy.requests["LIST nodes"] > 1
    await connection.close()
