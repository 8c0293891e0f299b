"""Pools with several labels: a wildcard keeps the nodes that have only one of them."""

from __future__ import annotations

from typing import Any

import pytest

from deciding import pod
from policies.engine import decide
from policies.facts import Facts
from policies.kubernetes.core_v1 import PodSpec
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.scheduling import REQUIRED, matches_node
from policies.kubernetes.workload import convert
from specs import policy_of
from strategies import JSON

GPU = "nvidia.com/gpu"
POOL = {
    "name": "attached",
    "resources": [GPU],
    "taints": [{"key": GPU}],
    "nodeSelector": {"type": "n1", "group": "b"},
}
NODES = [
    Node("gpu", {"type": "n1", "group": "b"}, allocatable={GPU: 1}),
    Node("same-type", {"type": "n1", "group": "a"}),
    Node("same-group", {"type": "n2", "group": "b"}),
    Node("other", {}),
]
TERMS: list[JSON] = [
    {},
    {"matchExpressions": [{"key": "type", "operator": "Exists"}]},
]


@pytest.mark.parametrize("term", TERMS)
def test_a_wildcard_keeps_the_nodes_of_no_pool(term: JSON) -> None:
    required = {"nodeSelectorTerms": [term]}
    affinity = {"nodeAffinity": {REQUIRED: required}}
    spec: JSON = {
        "tolerations": [{"operator": "Exists"}],
        **({"affinity": affinity} if term else {}),
    }
    made = {"apiVersion": "v1", "kind": "Pod", **pod({}, **spec)}
    before = {
        n.name for n in NODES if matches_node(convert(made["spec"], PodSpec), n.name, n.labels)
    }
    facts = Facts(nodes=NodeIndex(NODES))
    policy = policy_of({"pools": [POOL]})
    decision = decide(made, policy, facts=facts)
    assert decision.allowed, decision.findings
    after = convert(decision.mutated["spec"], PodSpec)
    kept = {n.name for n in NODES if matches_node(after, n.name, n.labels)}
    assert kept == before - {"gpu"}
    again = decide(decision.mutated, policy, facts=facts)
    assert again.mutated == decision.mutated


def test_of_many_pools_the_labels_that_leave_nodes_are_tried_first() -> None:
    """Five pools of two labels have 32 ways: the first 16 are tried."""
    models = [f"m{number}" for number in range(5)]
    pools = [{**POOL, "name": m, "nodeSelector": {"gpu": "true", "model": m}} for m in models]

    def terms(**spec: Any) -> list[JSON]:
        made = pod({}, tolerations=[{"operator": "Exists"}], **spec)
        affinity = decide(made, policy_of({"pools": pools})).mutated["spec"]["affinity"]
        found: list[JSON] = affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
        return found

    expression = {"key": "model", "operator": "NotIn", "values": models}
    assert terms(nodeSelector={"gpu": "true"}) == [{"matchExpressions": [expression]}]
    assert len(terms()) == 16
