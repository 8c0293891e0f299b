"""What a policy must know of the cluster, and how the rules fail closed without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import deciding
from clusters import policy
from policies.engine import decide, validate
from policies.facts import Facts, Request
from policies.kubernetes.claims import Claim
from policies.kubernetes.nodes import Node, NodeIndex
from policies.policy import Override, Policy
from webhook.cluster.needs import needed_facts

JSON = dict[str, Any]

ADMISSION = Request(namespace="ml", fail_closed=True)
KNOWN = NodeIndex([Node("plain-1", {})])
BY_LABEL = policy(allowedNamespaces={"names": ["research"], "matchLabels": {"team": "ml"}})


def pod(resource: str = "", **spec: Any) -> JSON:
    container = {"resources": {"limits": {resource: "1"}}} if resource else {}
    return deciding.pod(container, **spec)


def rules(obj: JSON, facts: Facts, of: Any = None, request: Request = ADMISSION) -> set[str]:
    return {finding.rule for finding in decide(obj, of or policy(), request, facts).findings}


@pytest.mark.parametrize("nodes", [None, KNOWN], ids=["no nodes", "another node"])
def test_a_pod_bound_to_an_unknown_node_is_denied_on_admission(nodes: NodeIndex | None) -> None:
    facts = Facts(nodes=nodes)
    assert rules(pod(nodeName="gpu-1"), facts) == {"pool-trespass"}
    assert "missing-device" in rules(pod("nvidia.com/mig-9g.99gb", nodeName="gpu-1"), facts)
    daemon_set = deciding.deployment(pod(nodeName="gpu-1")) | {"kind": "DaemonSet"}
    assert rules(daemon_set, facts) == {"pool-trespass"}


def test_a_pod_bound_to_a_known_node_is_allowed() -> None:
    assert rules(pod(nodeName="plain-1"), Facts(nodes=KNOWN)) == set()


def test_an_update_of_a_bound_pod_is_allowed_while_nodes_are_unknown() -> None:
    old = pod(nodeName="gpu-1")
    new = pod(nodeName="gpu-1", activeDeadlineSeconds=9)
    update = Request(namespace="ml", operation="UPDATE", old=old, fail_closed=True)
    assert validate(new, policy(), update, Facts()).findings == ()


def test_a_static_pod_of_a_node_that_has_just_joined_is_allowed() -> None:
    obj = pod(nodeName="new")
    obj["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    kubelet = Request(username="system:node:new", fail_closed=True)
    assert rules(obj, Facts(nodes=KNOWN), request=kubelet) == set()


def test_a_pool_with_match_labels_is_denied_without_namespace_labels() -> None:
    gpu = pod("nvidia.com/gpu")
    assert rules(gpu, Facts(), BY_LABEL) == {"pool-not-allowed"}
    assert rules(gpu, Facts(namespace_labels={}), BY_LABEL) == {"pool-not-allowed"}
    assert rules(gpu, Facts(namespace_labels={"team": "ml"}), BY_LABEL) == set()
    named = Request(namespace="research", fail_closed=True)
    assert rules(gpu, Facts(), BY_LABEL, named) == set()


@pytest.mark.parametrize(
    ("obj", "missing"),
    [
        (pod("nvidia.com/gpu"), ("namespaces",)),
        (pod(nodeName="n"), ("nodes",)),
        (pod("nvidia.com/gpu", nodeName="n"), ("nodes", "namespaces")),
        (pod(), ()),
    ],
)
def test_a_decision_without_a_cluster_allows_and_lists_missing_facts(
    obj: JSON, missing: tuple[str, ...]
) -> None:
    decision = decide(obj, BY_LABEL, Request(namespace="ml"))
    assert decision.allowed
    assert decision.missing_facts == missing
    known = Facts(nodes=NodeIndex([Node("n", {})]), namespace_labels={"team": "ml"})
    assert decide(obj, BY_LABEL, Request(namespace="ml"), known).missing_facts == ()


def test_labels_of_a_namespace_are_a_missing_fact_if_an_override_selects_by_them() -> None:
    selector = {"namespaceSelector": {"matchLabels": {"team": "ml"}}, "mode": "audit"}
    own, gpu = deciding.policy(overrides=[selector]), pod("nvidia.com/gpu")
    assert decide(gpu, own).missing_facts == ("namespaces",)
    assert decide(gpu, own, facts=Facts(namespace_labels={})).missing_facts == ()
    assert decide(gpu, deciding.policy()).missing_facts == ()


def test_an_unknown_claim_that_a_container_uses_is_a_missing_fact() -> None:
    obj = pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "one"}])
    assert decide(obj, policy()).missing_facts == ()
    obj["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    assert decide(obj, policy()).missing_facts == ("resourceclaims",)
    assert decide(obj, policy(deviceClasses=[])).missing_facts == ()
    claims = {("default", "one"): Claim((frozenset({"net.example.com"}),))}
    assert decide(obj, policy(), facts=Facts(claims=claims)).missing_facts == ()


def test_needed_facts_depend_on_pools_and_enabled_rules() -> None:
    plain = policy(deviceClasses=[])
    assert "names of their own" in needed_facts(plain)["runtimeclasses"]
    plain = replace(plain, rules={**plain.rules, "unrequested-gpu-runtime": "off"})
    assert set(needed_facts(plain)) == {"nodes", "resourceslices"}
    # The policy of a process that does not know its policy yet.
    assert not needed_facts(Policy(pools=()))
    assert set(needed_facts(policy(runtimeClass="nvidia"))) == {
        "nodes",
        "runtimeclasses",
        "deviceclasses",
        "resourceslices",
    }
    assert "requests for pool nvidia are denied" in needed_facts(BY_LABEL)["namespaces"]
    off = replace(plain, rules={**plain.rules, "pool-trespass": "off", "missing-device": "off"})
    assert set(needed_facts(off)) == {"resourceslices"}
    warned = Override(namespaces=("ml",), rules={"pool-trespass": "warn"})
    assert set(needed_facts(replace(off, overrides=(warned,)))) == {
        "nodes",
        "resourceslices",
    }
