"""Each controller of a replica against each fault of its API server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from certs.names import Names
from fake_apiserver import NODES, FakeApiServer, eventually
from fault_proxy import FAULTS, Fault, FaultProxy
from reviewing import default_policy
from webhook.cluster.device_inventory import DeviceInventory
from webhook.cluster.facts import ClusterFacts
from webhook.cluster.holders import CLAIMS, PODS
from webhook.kube.connection import Connection
from webhook.kube.credentials import Load, kubeconfig
from webhook.kube.reflector import Timing
from webhook.metrics.controllers import ControllerMetrics
from webhook.registration.certificates import SecretName
from webhook.registration.configurations import Registration
from webhook.registration.controller import ControllerOptions, RegistrationController
from webhook.registration.leader_election import LeaseTiming, lease_path
from webhook.server.periodic_task import PeriodicTask

LEASE = lease_path("system", "gpufence")
FAST = Timing(first_delay=0.01, longest_delay=0.05, quiet_seconds=0.5, steady_seconds=1)


@pytest.fixture
async def api() -> AsyncIterator[FakeApiServer]:
    api = FakeApiServer(NODES, PODS.path, CLAIMS.path, "/apis/resource.k8s.io/v1/deviceclasses")
    api.put(NODES, {"metadata": {"name": "gpu-1", "labels": {}}})
    await api.start()
    yield api
    await api.stop()


@pytest.fixture
async def proxy(api: FakeApiServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(api.url, delay_seconds=0.3) as proxy:
        yield proxy


@pytest.fixture
def load(api: FakeApiServer, proxy: FaultProxy, tmp_path: Path) -> Load:
    config = api.kubeconfig(tmp_path / "kubeconfig")
    config.write_text(config.read_text().replace(api.url, proxy.url))
    return kubeconfig(config)


def registration_controller(load: Load, lease: LeaseTiming) -> RegistrationController:
    options = ControllerOptions(
        load=load,
        namespace="system",
        registration=Registration(url="https://localhost:1"),
        secret=SecretName("system", "certificates"),
        names=Names.parse(["localhost"]),
        lease=lease,
    )
    metrics = ControllerMetrics(CollectorRegistry())
    return RegistrationController(options, default_policy, metrics, lambda: True)


@pytest.fixture
async def controller(load: Load) -> AsyncIterator[RegistrationController]:
    """A controller that leads, and has registered."""
    controller = registration_controller(load, LeaseTiming(duration=60))
    await controller.elect()
    await controller.reconcile()
    yield controller
    await controller.close()


EACH = pytest.mark.parametrize("fault", FAULTS)


@EACH
async def test_a_leader_keeps_its_lease_and_its_certificates(
    fault: Fault, api: FakeApiServer, proxy: FaultProxy, controller: RegistrationController
) -> None:
    before = dict(api.objects)
    tasks = [
        PeriodicTask("leader election", controller.elect, 0.05),
        PeriodicTask("registration", controller.reconcile, 0.05),
    ]
    running = [asyncio.create_task(task.run_forever()) for task in tasks]
    proxy.begin(fault)
    await asyncio.sleep(1)
    assert controller.is_leader
    assert all(task.problem for task in tasks) or fault in ("delay", "silence")
    proxy.end()
    requests = proxy.requests["PUT leases"]
    await eventually(lambda: proxy.requests["PUT leases"] > requests + 2, "renewals")
    await eventually(lambda: not any(task.problem for task in tasks), "the end of the problem")
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert controller.is_leader
    assert api.objects[LEASE]["spec"]["leaseTransitions"] == 0
    assert {path: obj for path, obj in api.objects.items() if path != LEASE} == {
        path: obj for path, obj in before.items() if path != LEASE
    }


async def test_a_leader_keeps_its_lease_while_each_response_is_late(
    api: FakeApiServer, proxy: FaultProxy, load: Load
) -> None:
    """A registration takes longer than the renew deadline, which is 2 s."""
    controller = registration_controller(load, LeaseTiming(duration=3))
    await controller.elect()
    proxy.begin("delay")
    registering = asyncio.create_task(controller.reconcile())
    renewing = asyncio.create_task(
        PeriodicTask("leader election", controller.elect, 0.1).run_forever()
    )
    began = time.monotonic()
    while not registering.done():
        assert controller.is_leader
        await asyncio.sleep(0.01)
    assert time.monotonic() - began > 2
    renewing.cancel()
    await asyncio.gather(registering, renewing, return_exceptions=True)
    proxy.end()
    await controller.close()


@EACH
async def test_what_is_watched_is_listed_once_however_long_it_takes(
    fault: Fault, api: FakeApiServer, proxy: FaultProxy, load: Load
) -> None:
    facts = ClusterFacts(Connection(load), default_policy(), timing=FAST)
    inventory = DeviceInventory(Connection(load), default_policy(), timing=FAST)
    await facts.start()
    await inventory.follow(True)
    await eventually(lambda: not facts.unready() and api.watching(NODES) == 2, "the watches")
    lists = {name: n for name, n in proxy.requests.items() if name.startswith("LIST")}
    proxy.begin(fault)
    api.put(NODES, {"metadata": {"name": "gpu-2", "labels": {}}})
    # Longer than a silent watch is waited for, and many times the delays between retries.
    await asyncio.sleep(1.2)
    assert not facts.unready()
    # What is known stays.
    assert facts.objects()["nodes"] >= 1
    proxy.end()
    await eventually(lambda: facts.objects()["nodes"] == 2, "the new node")
    assert {name: n for name, n in proxy.requests.items() if name.startswith("LIST")} == lists
    await facts.stop()
    await inventory.stop()


@pytest.mark.parametrize("seconds", [0.2, 1.0])
async def test_the_advice_to_retry_later_is_honored(
    api: FakeApiServer, proxy: FaultProxy, load: Load, seconds: float
) -> None:
    """429 with ``Retry-After: 1`` leads to one request a second, and not to one each 50 ms."""
    facts = ClusterFacts(Connection(load), default_policy(), timing=FAST)
    proxy.begin("too many requests")
    await facts.start()
    await asyncio.sleep(seconds)
    assert proxy.requests["LIST nodes"] == 1
    proxy.end()
    await eventually(lambda: not facts.unready(), "the list")
    await facts.stop()
