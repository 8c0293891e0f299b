"""Measures a decision by number of containers, pools, nodes and exemptions.

Only the size of the Pod itself should matter: the lines of the others are flat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from bench import pods
from bench.engine import microseconds
from policies.decision import patched
from policies.engine import mutate, validate
from policies.facts import Facts, Request
from policies.kubernetes.nodes import Node, NodeIndex
from policies.policy import Policy
from specs import default_spec, policy_of

JSON = dict[str, Any]
Cost = Callable[[int], float]

GPU_LABEL = "nvidia.com/gpu.present"


def measure() -> dict[str, dict[int, float]]:
    """Return the microseconds to mutate and validate one GPU Pod, by dimension and number."""
    dimensions: dict[str, tuple[Cost, Iterable[int]]] = {
        "containers": (_with_containers, (1, 2, 5, 10, 25, 50, 100, 250)),
        "pools": (_with_pools, (1, 2, 5, 10, 25, 50, 100)),
        "nodes": (_with_nodes, (0, 10, 100, 1000, 10_000)),
        "exemptions": (_with_exemptions, (1, 10, 100, 1000)),
    }
    return {
        dimension: {number: cost(number) for number in numbers}
        for dimension, (cost, numbers) in dimensions.items()
    }


def _with_containers(number: int) -> float:
    return cost_of(policy_with({}), Facts(), pods.large_pod(number))


def _with_pools(number: int) -> float:
    [nvidia] = default_spec()["pools"]
    others = [
        {
            "name": f"pool-{n}",
            "resources": [f"vendor-{n}.example/gpu"],
            "taints": [{"key": f"vendor-{n}.example/gpu", "effect": "NoSchedule"}],
            "nodeSelector": {f"vendor-{n}.example/present": "true"},
        }
        for n in range(number - 1)
    ]
    return cost_of(policy_with({"pools": [nvidia, *others]}), Facts())


def _with_nodes(number: int) -> float:
    nodes = NodeIndex(
        Node(f"node-{n}", {GPU_LABEL: "true"} if n % 20 == 0 else {"zone": f"zone-{n % 3}"})
        for n in range(number)
    )
    return cost_of(policy_with({}), Facts(nodes=nodes))


def _with_exemptions(number: int) -> float:
    names = [f"namespace-{n}" for n in range(number)]
    return cost_of(policy_with({"exemptions": {"namespaces": names, "usernames": names}}), Facts())


def cost_of(policy: Policy, facts: Facts, pod: JSON | None = None) -> float:
    """Return the microseconds to mutate and validate a Pod: by default, a typical GPU Pod."""
    original = pods.gpu_pod() if pod is None else pod
    request = Request()
    mutated = patched(original, mutate(original, policy, request, facts))
    return microseconds(partial(mutate, original, policy, request, facts)) + microseconds(
        partial(validate, mutated, policy, request, facts)
    )


def policy_with(changes: JSON) -> Policy:
    return policy_of(default_spec() | changes)
