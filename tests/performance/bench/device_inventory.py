"""Measures counting the devices of 5,000 Pods: `python -m bench.device_inventory`, a minute.

The CPU time is this process' alone: the fake API server is another. Pods are as large as in a
cluster, 9 KB each; one in twenty has GPUs.
"""

from __future__ import annotations

import asyncio
import json
import time
import tracemalloc
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import msgspec

from bench.cluster_facts import measure, microseconds, stall
from clusters import policy
from fake_apiserver import NODES, FakeApiServer, eventually
from webhook.cluster.device_inventory import DeviceInventory, Holding, PodObject, of_pod
from webhook.cluster.stores import Tally
from webhook.kube.connection import Connection
from webhook.kube.credentials import kubeconfig
from webhook.kube.reflector import Event, Timing

JSON = dict[str, Any]

PODS = "/api/v1/pods"
COUNT = 5000
GPU_POD_RATIO = 20
EVENTS = 10_000
GPU = "nvidia.com/gpu"


def pod(number: int) -> JSON:
    has_gpu = number % GPU_POD_RATIO == 0
    name = f"checkout-{number // 10:05}-7c9d8b6f5-{number:05}"
    env = [{"name": f"SETTING_{i}", "value": f"a value as long as most are {i}"} for i in range(40)]
    resources = {"cpu": "500m", "memory": "1Gi"} | ({GPU: "1"} if has_gpu else {})
    sidecar = {
        "name": "proxy",
        "image": "registry.example/mesh/proxy:1.29.0",
        "env": env[:20],
        "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "100m"}},
    }
    main = {
        "name": "main",
        "image": f"registry.example/team/app@sha256:{number:064x}",
        "env": env,
        "resources": {"limits": resources, "requests": resources},
    }
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    ]
    fields: JSON = {
        f"f:{variable['name']}": {".": {}, "f:name": {}, "f:value": {}} for variable in env
    }
    return {
        "metadata": {
            "name": name,
            "namespace": f"team-{number % 200}",
            "uid": "u" * 36,
            "labels": {f"example.com/label-{i}": f"value-{i}" for i in range(10)},
            "managedFields": [{"manager": "kube-controller-manager", "fieldsV1": fields}],
        },
        "spec": {"containers": [main, sidecar], "nodeName": f"node-{number % 500}"},
        "status": {"phase": "Running", "conditions": conditions, "podIP": "10.1.2.3"},
    }


def serve(pipe: Pipe) -> None:
    """Run the fake API server: send its URL, then changes of Pods for each message received."""

    async def run() -> None:
        api = FakeApiServer(NODES, PODS)
        for number in range(COUNT):
            api.put(PODS, pod(number))
        await api.start()
        pipe.send(api.url)
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, pipe.recv):
            for number in range(EVENTS):
                api.put(PODS, pod(number % COUNT))
                if number % 100 == 0:
                    await asyncio.sleep(0)
            api.put(PODS, pod(COUNT * GPU_POD_RATIO))

    asyncio.run(run())


def read_one() -> None:
    for title, number in (("a Pod without GPUs", 1), ("a Pod with GPUs", 0)):
        line = json.dumps({"type": "MODIFIED", "object": pod(number)}).encode()
        decoder = msgspec.json.Decoder(Event[PodObject])
        rules = policy()
        tally = Tally[PodObject, Holding](lambda obj, rules=rules: of_pod(obj, rules))  # type: ignore[misc]
        cost = microseconds(lambda: tally.put(decoder.decode(line).object), 5000)  # noqa: B023
        print(f"{title}, a watch event of {len(line)} bytes, read and counted: {cost:.0f} us")


async def follow(url: str, pipe: Pipe, directory: Path) -> None:
    """Count the devices of the other process' Pods, and print the cost."""
    config = directory / "kubeconfig"
    FakeApiServer().kubeconfig(config)
    config.write_text(config.read_text().replace("http://127.0.0.1:0", url))
    inventory = DeviceInventory(Connection(kubeconfig(config)), policy(), timing=Timing())
    await inventory.follow(True)
    await inventory.stop()  # exclude imports on first use
    stalls: list[float] = []
    watching = asyncio.create_task(stall(stalls))
    cpu, wall = time.process_time(), time.perf_counter()
    await inventory.follow(True)
    await eventually(lambda: dict(inventory.holdings()), "the list", within=300)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(f"the first list of {COUNT} Pods: {cpu:.2f} s of CPU, {wall:.1f} s in all,")
    print(f"  {inventory.objects()['pods']} kept;", end=" ")
    print(f"the event loop was blocked for {max(stalls) * 1e3:.0f} ms at most")
    await asyncio.sleep(1)
    stalls.clear()
    kept, cpu = inventory.objects()["pods"], time.process_time()
    pipe.send(True)
    await eventually(lambda: inventory.objects()["pods"] > kept, "the last event", within=300)
    cpu = time.process_time() - cpu
    print(f"{EVENTS} changes of Pods, over HTTP: {cpu:.2f} s of CPU, {cpu / EVENTS * 1e6:.0f} us")
    print(f"  each; the event loop was blocked for {max(stalls) * 1e3:.0f} ms at most")
    watching.cancel()
    await inventory.stop()


def weigh() -> None:
    rules, decoder = policy(), msgspec.json.Decoder(PodObject)
    tally = Tally[PodObject, Holding](lambda obj: of_pod(obj, rules))
    tracemalloc.start()
    for number in range(COUNT):
        tally.put(decoder.decode(json.dumps(pod(number)).encode()))
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    print(f"memory: {kept / 1024:.0f} KiB for {len(tally)} of {COUNT} Pods, ", end="")
    print(f"{kept / len(tally):.0f} bytes for one that is kept")


def main() -> None:
    read_one()
    weigh()
    measure(serve, follow)


if __name__ == "__main__":
    main()
