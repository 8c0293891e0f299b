"""Discovered policies on the nodes of platforms: no GPU Pod stays Pending because of gpufence.

Each file under ``clouds/`` has the groups of nodes of a platform.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from policies.document import parse_policy
from policies.engine import decide
from policies.facts import Facts
from policies.kubernetes.core_v1 import PodSpec
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.scheduling import FENCING_EFFECTS, Taint, matches_node, tolerates
from policies.kubernetes.workload import convert
from policies.policy import Policy
from policies.pool_nodes import nodes_of_pools as members_of
from running import Run
from webhook.tools.cli.discover.accelerators import is_generic

JSON = dict[str, Any]
CLOUDS = sorted(Path(__file__).with_name("clouds").glob("*.yaml"))
TRANSIENT = ("node.kubernetes.io/", "node-role.kubernetes.io/")


def nodes_of(cloud: Path) -> list[JSON]:
    """Return two nodes of each group."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"node-{group}-{number}",
                "labels": {
                    **each["labels"],
                    "kubernetes.io/hostname": f"node-{group}-{number}",
                    "kubernetes.io/os": "linux",
                },
            },
            "spec": {"taints": [_taint(taint) for taint in each.get("taints", ())]},
            "status": {
                "allocatable": {k: str(v) for k, v in each.get("devices", {"cpu": 8}).items()}
            },
        }
        for group, each in enumerate(yaml.safe_load(cloud.read_text()))
        for number in (1, 2)
    ]


def _taint(text: str) -> JSON:
    named, effect = text.rsplit(":", 1)
    key, _, value = named.partition("=")
    return {"key": key, "value": value, "effect": effect}


def typed(node: JSON) -> Node:
    taints = [Taint(t["key"], t["effect"], t["value"]) for t in node["spec"]["taints"]]
    devices = {k: int(v) for k, v in node["status"]["allocatable"].items() if "/" in k}
    labels = node["metadata"]["labels"]
    return Node(node["metadata"]["name"], labels, tuple(taints), devices)


def discovered(gpufence: Run, *objects: JSON) -> Policy:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    done = gpufence("policy", "discover", "--nodes", "-", stdin=text)
    assert done.status == 0
    return parse_policy(yaml.safe_load(done.out))


def pod(resources: dict[str, int] | None = None, **spec: Any) -> JSON:
    container: JSON = {"name": "main", "image": "app"}
    if resources:
        container["resources"] = {"limits": resources}
    metadata = {"name": "train", "namespace": "ml"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], **spec},
    }


def fits(spec: PodSpec, node: Node) -> bool:
    own = spec.tolerations or ()
    return matches_node(spec, node.name, node.labels) and all(
        any(tolerates(each, taint) for each in own)
        for taint in node.taints
        if taint.effect in FENCING_EFFECTS
    )


@pytest.fixture(params=CLOUDS, ids=lambda path: path.stem)
def fleet(gpufence: Run, request: pytest.FixtureRequest) -> tuple[Policy, NodeIndex]:
    """Return the discovered policy of a platform, and its nodes."""
    listed = nodes_of(request.param)
    return discovered(gpufence, *listed), NodeIndex(map(typed, listed))


def test_every_gpu_pod_that_runs_without_gpufence_runs_with_the_discovered_policy(
    fleet: tuple[Policy, NodeIndex],
) -> None:
    policy, nodes = fleet
    tried = 0
    for node in nodes:
        own = members_of(policy, nodes).pools_with(nodes.number(node.name))
        for resource, count in (node.allocatable or {}).items():
            if not (count and policy.pools_of_resource(resource)):
                continue
            tried += 1
            assert {*own} & {*policy.pools_of_resource(resource)}
            # As authors write them: the taints of the node, or those that no pool has.
            for taints in (node.taints, filter(is_generic, node.taints)):
                tolerations = [{"key": t.key, "operator": "Exists"} for t in taints]
                made = pod({resource: 1}, tolerations=tolerations)
                decision = decide(made, policy, facts=Facts(nodes=nodes))
                assert decision.allowed, decision.findings
                assert fits(convert(decision.mutated["spec"], PodSpec), node), (node, resource)
    assert tried


def test_no_pod_that_tolerates_a_generic_taint_is_denied(fleet: tuple[Policy, NodeIndex]) -> None:
    policy, nodes = fleet
    for taint in {taint for node in nodes for taint in node.taints}:
        if is_generic(taint) or taint.key.startswith(TRANSIENT):
            tolerant = pod(tolerations=[{"key": taint.key, "operator": "Exists"}])
            decision = decide(tolerant, policy, facts=Facts(nodes=nodes))
            assert decision.allowed, decision.findings


def test_pools_have_no_generic_taint(fleet: tuple[Policy, NodeIndex]) -> None:
    policy, _ = fleet
    assert not any(is_generic(taint) for pool in policy.pools for taint in pool.taints)
