"""Measures a decision by node selection and number of nodes: `python -m bench.selections`.

It prints a table of microseconds to mutate and validate one Pod.
"""

from __future__ import annotations

from typing import Any

from bench import pods
from bench.growth import GPU_LABEL, cost_of, policy_with
from policies.facts import Facts
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.scheduling import Taint

JSON = dict[str, Any]

NODES = (50, 500, 5000, 15_000)
GPU_NODES = 5000
_ZONE = "topology.kubernetes.io/zone"
_TYPE = "node.kubernetes.io/instance-type"


def _requiring(*terms: tuple[str, str, list[str]], field: bool = False) -> JSON:
    kind = "matchFields" if field else "matchExpressions"
    listed = [
        {kind: [{"key": key, "operator": operator, "values": values}]}
        for key, operator, values in terms
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": listed}}
    return {"affinity": {"nodeAffinity": required}}


def _tolerating(selection: JSON) -> JSON:
    """Return a plain Pod that tolerates every taint, with a node selection."""
    pod = pods.plain_pod()
    pod["spec"] |= {"tolerations": [{"operator": "Exists"}], **selection}
    return pod


def _large_gpu_pod() -> JSON:
    pod = pods.gpu_pod()
    pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 16}}
    return pod


ZONES = [f"zone-{n}" for n in range(3)]
SELECTIONS: dict[str, JSON] = {
    "a GPU Pod": pods.gpu_pod(),
    "a GPU Pod that needs 16 GPUs, where nodes have 8": _large_gpu_pod(),
    "a plain Pod without a selection": pods.plain_pod(),
    "tolerates all taints, no selection": _tolerating({}),
    "`nodeSelector`": _tolerating({"nodeSelector": {_TYPE: "type-1"}}),
    "`nodeName`": _tolerating({"nodeName": "node-1"}),
    "`matchFields`": _tolerating(_requiring(("metadata.name", "In", ["node-1"]), field=True)),
    "`In`": _tolerating(_requiring((_TYPE, "In", ["type-1", "type-3"]))),
    "`NotIn`": _tolerating(_requiring((_TYPE, "NotIn", ["type-0"]))),
    "`Exists`": _tolerating(_requiring((_TYPE, "Exists", []))),
    "`DoesNotExist`": _tolerating(_requiring((_TYPE, "DoesNotExist", []))),
    "`Gt`": _tolerating(_requiring(("serial", "Gt", ["100000"]))),
    "`Lt`": _tolerating(_requiring(("serial", "Lt", ["25"]))),
    "200 terms with `NotIn`": _tolerating(_requiring(*[(_ZONE, "NotIn", [*ZONES, "x"])] * 200)),
    "200 terms with `Gt`": _tolerating(
        _requiring(*(("serial", "Gt", [str(100_000 + n)]) for n in range(200)))
    ),
    "200 terms with 25 host names": _tolerating(
        _requiring(
            *(
                ("kubernetes.io/hostname", "In", [f"node-{n + k}" for k in range(25)])
                for n in range(200)
            )
        )
    ),
}


def nodes(count: int, every: int) -> NodeIndex:
    """Return nodes; one in `every` has eight GPUs, a label and a taint."""
    return NodeIndex(_node(n, n % every == 0) for n in range(count))


def _node(n: int, has_devices: bool) -> Node:
    labels = {
        _ZONE: ZONES[n % 3],
        _TYPE: f"type-{n % 20}",
        "kubernetes.io/hostname": f"node-{n}",
        "serial": str(n),
    }
    if not has_devices:
        return Node(f"node-{n}", labels, allocatable={})
    labels[GPU_LABEL] = "true"
    return Node(f"node-{n}", labels, (Taint("nvidia.com/gpu"),), {"nvidia.com/gpu": 8})


def main() -> None:
    policy = policy_with({})
    clusters = {f"{count:,}": nodes(count, 25) for count in NODES}
    clusters[f"{GPU_NODES:,}, all with GPUs"] = nodes(GPU_NODES, 1)
    print(f"| selection | {' | '.join(clusters)} |")
    print(f"| --- |{' ---: |' * len(clusters)}")
    for name, pod in SELECTIONS.items():
        costs = (cost_of(policy, Facts(nodes=index), pod) for index in clusters.values())
        print(f"| {name} | {' | '.join(f'{cost:,.0f}' for cost in costs)} |", flush=True)


if __name__ == "__main__":
    main()
