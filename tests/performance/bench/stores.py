"""What the stores of a replica take, by the number of nodes: `python -m bench.stores`.

The times are CPU of this process. Only the build grows with the nodes.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable

from policies.kubernetes.core_v1 import Requirement
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.scheduling import Alternative, Taint
from webhook.cluster.state import ClusterState
from webhook.cluster.templates import NODE_CLAIMS, TemplateObject
from webhook.kube.collection import AnnotatedMetadata

HOSTNAME = "kubernetes.io/hostname"
EVERY_HOST = Alternative({}, (Requirement(HOSTNAME, "Exists"),), (), "")
TIMES = 20


def node(number: int, label: str = "") -> Node:
    """Return a node with the labels of a cloud; every tenth has GPUs."""
    labels = {
        HOSTNAME: f"n{number}",
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": f"z{number % 3}",
        "node.kubernetes.io/instance-type": f"t{number % 40}",
        "rack": f"r{number // 32}",
        "changed": label,
    }
    if number % 10:
        return Node(f"n{number}", labels)
    taints = (Taint("nvidia.com/gpu", "NoSchedule", "present"),)
    return Node(f"n{number}", labels, taints, {"nvidia.com/gpu": 8})


def milliseconds(work: Callable[[], object], times: int = TIMES) -> float:
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) / times * 1000


def measure(size: int) -> dict[str, float]:
    """Return milliseconds by operation, for so many nodes and NodeClaims."""
    index, numbers = NodeIndex(), itertools.count()

    def replace() -> None:
        index.remove("n7")
        index.update(node(7))

    def replace_and_select() -> None:
        replace()
        index.accepted_by(EVERY_HOST)

    def change() -> None:
        number = next(numbers)
        index.update(node(number % size, str(number)))

    claims = ClusterState(None)
    store = claims.template_stores[NODE_CLAIMS]
    items = [TemplateObject(AnnotatedMetadata(name=f"c{number}")) for number in range(size)]
    return {
        "add a node": milliseconds(lambda: [*map(index.update, map(node, range(size)))], 1) / size,
        "change a label": milliseconds(change),
        "replace a node": milliseconds(replace),
        "replace a node, select all hosts": milliseconds(replace_and_select),
        "add a NodeClaim": milliseconds(lambda: [*map(store.put, items)], 1) / size,
        "facts of a request": milliseconds(lambda: claims.facts(())),
    }


def main() -> None:
    for size in map(int, sys.argv[1:] or ("1000", "10000", "100000")):
        print(f"{size:,} nodes")
        for operation, taken in measure(size).items():
            print(f"  {operation:34}{taken:10.4f} ms")


if __name__ == "__main__":
    main()
