"""Measures the facts of 5,000 nodes: `python -m bench.nodes`.

It prints the memory that they take, and the CPU time of a watch event. A node is as large as a
cloud provider's, with 40 labels; one in twenty has GPUs.
"""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import msgspec

from bench.engine import microseconds
from reviewing import default_policy
from webhook.cluster.nodes import NodeObject, NodeStore
from webhook.kube.reflector import Event

JSON = dict[str, Any]

COUNT = 5000
GPU_NODE_RATIO = 20


def node(number: int, instance_type: str = "m7i.8xlarge") -> JSON:
    name = f"ip-10-0-{number // 256}-{number % 256}.eu-west-1.compute.internal"
    labels = {
        "kubernetes.io/hostname": name,
        "node.kubernetes.io/instance-type": instance_type,
        "topology.kubernetes.io/zone": f"eu-west-1{'abc'[number % 3]}",
        "karpenter.sh/nodepool": f"pool-{number % 7}",
        "example.com/instance-id": f"i-{number:017x}",
        **{f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{i}": "true" for i in range(35)},
    }
    resources = {"cpu": "32", "memory": "129014288Ki", "pods": "234"}
    taints = []
    if number % GPU_NODE_RATIO == 0:
        labels["nvidia.com/gpu.present"] = "true"
        resources["nvidia.com/gpu"] = "8"
        taints = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    return {
        "metadata": {"name": name, "uid": "u" * 36, "labels": labels},
        "spec": {"providerID": f"aws:///eu-west-1a/i-{number:017x}", "taints": taints},
        "status": {"capacity": resources, "allocatable": resources},
    }


def store_of_all() -> NodeStore:
    decoder = msgspec.json.Decoder(NodeObject)
    store = NodeStore(default_policy())
    for number in range(COUNT):
        store.put(decoder.decode(json.dumps(node(number)).encode()))
    return store


def main() -> None:
    tracemalloc.start()
    store = store_of_all()
    mebibytes = tracemalloc.get_traced_memory()[0] / 2**20
    tracemalloc.stop()
    print(f"memory for {len(store)} nodes: {mebibytes:.0f} MiB")
    decoder = msgspec.json.Decoder(Event[NodeObject])
    unchanged, changed = (
        json.dumps({"type": "MODIFIED", "object": node(7, instance_type)}).encode()
        for instance_type in ("m7i.8xlarge", "m7i.16xlarge")
    )

    def heartbeat() -> None:
        store.put(decoder.decode(unchanged).object)

    def change() -> None:
        store.put(decoder.decode(changed).object)
        store.put(decoder.decode(unchanged).object)

    print(f"a watch event without a change: {microseconds(heartbeat):.0f} us")
    print(f"a watch event with a change: {microseconds(change) / 2:.0f} us")


if __name__ == "__main__":
    main()
