"""Measures watching 5,000 nodes: `python -m bench.cluster_facts`, half a minute.

The CPU time is this process' alone: the fake API server is another. Nodes are as large as a
cloud provider's: 40 labels, 50 images, 18 KB; one in twenty has GPUs.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
import tracemalloc
from collections.abc import Callable, Coroutine
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from clusters import policy
from fake_apiserver import NODES, FakeApiServer, eventually
from policies.engine import decide
from policies.facts import Facts
from webhook.cluster.facts import ClusterFacts
from webhook.cluster.nodes import NodeObject, NodeStore
from webhook.kube.connection import Connection
from webhook.kube.credentials import kubeconfig
from webhook.kube.reflector import Event, Timing

JSON = dict[str, Any]

COUNT = 5000
GPU_NODE_RATIO = 20
EVENTS = 10_000
"""Heartbeats of one minute."""
PLAIN, WITH_GPU = "m7i.8xlarge", "p5.48xlarge"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"


def node(number: int) -> JSON:
    has_gpu = number % GPU_NODE_RATIO == 0
    name = f"ip-10-0-{number // 256}-{number % 256}.eu-west-1.compute.internal"
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        INSTANCE_TYPE: WITH_GPU if has_gpu else PLAIN,
        ZONE: f"eu-west-1{'abc'[number % 3]}",
        "karpenter.sh/nodepool": f"pool-{number % 7}",
        "example.com/instance-id": f"i-{number:017x}",
        **{f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{i}": "true" for i in range(33)},
    }
    resources = {"cpu": "32", "memory": "129014288Ki", "pods": "234"}
    taints = []
    if has_gpu:
        labels["nvidia.com/gpu.present"] = "true"
        resources["nvidia.com/gpu"] = "8"
        taints = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    registry = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/app"
    images = [
        {"names": [f"{registry}-{i}@sha256:{i * number + 7:064x}", f"{registry}-{i}:v1.{i}"]}
        for i in range(50)
    ]
    conditions = [
        {
            "type": kind,
            "status": "False",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "reason": "KubeletIsFine",
            "message": "kubelet has sufficient of everything available",
        }
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    managed = [{"manager": "kubelet", "fieldsV1": {f"f:{key}": {} for key in [*labels, *labels]}}]
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "uid": "u" * 36, "labels": labels, "managedFields": managed},
        "spec": {"providerID": f"aws:///eu-west-1a/i-{number:017x}", "taints": taints},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": conditions,
            "images": images,
        },
    }


def serve(pipe: Pipe) -> None:
    """Run the fake API server: send its URL, then all heartbeats for each message received."""

    async def run() -> None:
        api = FakeApiServer(NODES)
        for number in range(COUNT):
            api.put(NODES, node(number))
        await api.start()
        pipe.send(api.url)
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, pipe.recv):
            for number in range(EVENTS):
                api.put(NODES, node(number % COUNT))
                if number % 100 == 0:
                    await asyncio.sleep(0)
            api.put(NODES, {"metadata": {"name": "last"}})

    asyncio.run(run())


def microseconds(work: Callable[[], object], times: int) -> float:
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times * 1e6


def compare_reading() -> None:
    """Compare the cost of reading a watch event with this project's types and the client's."""
    from kubernetes.aio.watch import Watch

    line = json.dumps({"type": "MODIFIED", "object": node(7)}).encode()
    print(f"a watch event of {len(line)} bytes, {len(node(7)['metadata']['labels'])} labels:")
    decoder = msgspec.json.Decoder(Event[NodeObject])
    store = NodeStore(policy())
    store.put(decoder.decode(line).object)

    async def with_client() -> float:
        watch = Watch()
        cost = microseconds(lambda: watch.unmarshal_event(line.decode(), "V1Node"), 100)
        await watch.close()
        return cost

    def unchanged() -> None:
        store.put(decoder.decode(line).object)

    costs = {
        "read by kubernetes.aio": asyncio.run(with_client()),
        "read with msgspec": microseconds(lambda: decoder.decode(line), 5000),
        "read and compared (unchanged)": microseconds(unchanged, 5000),
    }
    for what, cost in costs.items():
        print(f"  {what:32} {cost:8.1f} us")


async def follow(url: str, pipe: Pipe, directory: Path) -> None:
    """Watch the nodes of the other process, and print the cost."""
    config = directory / "kubeconfig"
    FakeApiServer().kubeconfig(config)
    config.write_text(config.read_text().replace("http://127.0.0.1:0", url))
    cluster = ClusterFacts(Connection(kubeconfig(config)), policy(), timing=Timing())
    stalls: list[float] = []
    watching = asyncio.create_task(stall(stalls))
    cpu, wall = time.process_time(), time.perf_counter()
    await cluster.start()
    await eventually(lambda: cluster.objects()["nodes"] == COUNT, "the list", within=300)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(f"the first list of {COUNT} nodes: {cpu:.2f} s of CPU, {wall:.1f} s in all,")
    print(f"  the event loop was blocked for {max(stalls) * 1e3:.0f} ms at most")
    await asyncio.sleep(1)
    stalls.clear()
    cpu = time.process_time()
    pipe.send(True)
    await eventually(lambda: cluster.objects()["nodes"] > COUNT, "the last event", within=300)
    cpu = time.process_time() - cpu
    print(f"{EVENTS} heartbeats, as in a minute, over HTTP: {cpu:.2f} s of CPU,")
    print(f"  {cpu / EVENTS * 1e6:.0f} us each, {cpu / 60:.2%} of one core;")
    print(f"  the event loop was blocked for {max(stalls) * 1e3:.0f} ms at most")
    watching.cancel()
    await cluster.stop()


async def stall(stalls: list[float]) -> None:
    """Record the CPU time that other tasks use before each turn of this one.

    Wall-clock time would include other processes of the machine.
    """
    while True:
        start = time.thread_time()
        await asyncio.sleep(0.01)
        stalls.append(time.thread_time() - start)


def store_of_all() -> NodeStore:
    decoder = msgspec.json.Decoder(NodeObject)
    store = NodeStore(policy())
    for number in range(COUNT):
        store.put(decoder.decode(json.dumps(node(number)).encode()))
    return store


def weigh() -> None:
    tracemalloc.start()
    kept = store_of_all()
    print(f"memory for {len(kept)} nodes: {tracemalloc.get_traced_memory()[0] / 2**20:.0f} MiB")
    tracemalloc.stop()


def pod(**spec: Any) -> JSON:
    containers = [{"name": "c", "image": "i"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": containers, **spec},
    }


def requiring(key: str, operator: str, *values: str) -> JSON:
    expression = {"key": key, "operator": operator, "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def compare_deciding() -> None:
    """Compare the cost of a decision without node facts and with them."""
    gpu_host = node(GPU_NODE_RATIO)["metadata"]["name"]
    plain_host = node(1)["metadata"]["name"]
    tolerating = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    cases = {
        "no node selection": pod(),
        "nodeName, plain": pod(nodeName=plain_host),
        "hostname, plain": pod(nodeSelector={"kubernetes.io/hostname": plain_host}),
        "hostname, GPU (denied)": pod(nodeSelector={"kubernetes.io/hostname": gpu_host}),
        "os=linux": pod(nodeSelector={"kubernetes.io/os": "linux"}),
        "instance type, plain": pod(nodeSelector={INSTANCE_TYPE: PLAIN}),
        "instance type, GPU (denied)": pod(nodeSelector={INSTANCE_TYPE: WITH_GPU}),
        "zone In two": pod(affinity=requiring(ZONE, "In", "eu-west-1a", "eu-west-1b")),
        "nodepool Exists": pod(affinity=requiring("karpenter.sh/nodepool", "Exists")),
        "GPU label DoesNotExist": pod(affinity=requiring("nvidia.com/gpu.present", "DoesNotExist")),
        "tolerating, type NotIn GPU": pod(
            tolerations=tolerating, affinity=requiring(INSTANCE_TYPE, "NotIn", WITH_GPU)
        ),
        "a label that no node has": pod(nodeSelector={"example.com/none": "x"}),
    }
    rules, facts = policy(), Facts(nodes=store_of_all().index)
    print(f"{'a decision at ' + str(COUNT) + ' nodes':32} {'without':>9} {'with':>9}  us")
    for name, obj in cases.items():
        without = microseconds(lambda obj=obj: decide(obj, rules), 500)  # type: ignore[misc]
        with_nodes = microseconds(lambda obj=obj: decide(obj, rules, facts=facts), 500)  # type: ignore[misc]
        print(f"  {name:30} {without:9.1f} {with_nodes:9.1f}")


def measure(
    serve: Callable[[Pipe], None], follow: Callable[[str, Pipe, Path], Coroutine[Any, Any, None]]
) -> None:
    """Run `serve` in a child process, and `follow` in this one until it ends."""
    context = multiprocessing.get_context("spawn")
    parent_end, child_end = context.Pipe()
    server = context.Process(target=serve, args=(child_end,), daemon=True)
    server.start()
    url = parent_end.recv()
    with TemporaryDirectory() as directory:
        asyncio.run(follow(url, parent_end, Path(directory)))
    parent_end.send(False)
    server.join(10)


def main() -> None:
    compare_reading()
    compare_deciding()
    weigh()
    measure(serve, follow)


if __name__ == "__main__":
    main()
