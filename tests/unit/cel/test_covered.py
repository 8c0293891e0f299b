"""Which Pods the API server mutates by itself, as far as the policy decides it.

What it makes of Pods, and that it agrees with the engine, is tried on a real API server
(`tests/e2e/test_in_tree_mutations.py`).
"""

from __future__ import annotations

from typing import Any

import pytest

from policies.policy import Policy
from specs import policy_of
from webhook.controller.cel.admission_policies import BINDING_KIND, POLICY_KIND, admission_policies
from webhook.controller.cel.configurations import Registration, configurations
from webhook.controller.cel.covered import conditions, targets

JSON = dict[str, Any]
PRODUCT = "nvidia.com/gpu.product"


def pool(name: str, **fields: Any) -> JSON:
    return {
        "name": name,
        "resources": ["nvidia.com/gpu"],
        "nodeSelector": {"gpu": "true", PRODUCT: name},
        **fields,
    }


def policy(*pools: JSON, **fields: Any) -> Policy:
    return policy_of({"pools": list(pools), **fields})


def names(made: Policy, *left_out: str) -> list[tuple[str, ...]]:
    found = targets(made, frozenset(left_out))
    return [tuple(pool.name for pool in target.pools) for target in found]


def test_pools_that_differ_in_one_label_have_a_target_together() -> None:
    made = policy(pool("a100"), pool("h100"))
    assert names(made) == [("a100",), ("h100",), ("a100", "h100")]
    assert targets(made, frozenset())[-1].labels == {"gpu": ("true",), PRODUCT: ("a100", "h100")}


def test_a_tenant_has_its_pools_and_those_of_all() -> None:
    made = policy(pool("a100"), pool("h100", allowedNamespaces={"names": ["research"]}))
    assert names(made) == [("a100",), ("h100",), ("a100", "h100")]
    three = policy(
        pool("a100"), pool("l4"), pool("h100", allowedNamespaces={"names": ["research"]})
    )
    assert ("a100", "l4") in names(three)
    assert ("a100", "l4", "h100") in names(three)


@pytest.mark.parametrize(
    "fields",
    [
        {"nodeSelector": {"zone": "a"}},
        {"runtimeClass": "nvidia"},
        {"nodeSelector": {"gpu": "true"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]},
    ],
    ids=["two labels", "another RuntimeClass", "any value"],
)
def test_pools_that_differ_in_more_have_no_target_together(fields: JSON) -> None:
    assert names(policy(pool("a100"), pool("h100", **fields))) == [("a100",), ("h100",)]


@pytest.mark.parametrize(
    "fields",
    [
        {"largestRequest": 4},
        {"hardening": {"level": "baseline"}},
        {"allowedNamespaces": {"matchLabels": {"team": "a"}}},
        {"requires": [{"minDevices": 8, "action": "enforce"}]},
    ],
    ids=lambda fields: min(fields),
)
def test_a_pool_about_which_the_pod_alone_does_not_decide_has_no_target(fields: JSON) -> None:
    assert names(policy(pool("a100"), pool("h100", **fields))) == [("a100",)]


def test_a_policy_without_targets_has_webhooks_and_no_mutating_policy() -> None:
    made = policy(pool("a100", largestRequest=4))
    registration = Registration(url="https://gpufence.example:443", mutates=True)
    assert len(configurations(made, registration)) == 2
    kinds = {obj["kind"] for obj in admission_policies(made, registration)}
    assert kinds == {POLICY_KIND, BINDING_KIND}


def test_a_pool_that_is_left_out_has_no_target() -> None:
    assert names(policy(pool("a100"), pool("h100")), "h100") == [("a100",)]


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "warn"},
        {"hardening": {"level": "off"}},
        {"hardening": {"hostUsers": False}},
        {"rules": {"pool-toleration": "warn"}},
        {"rules": {"needs-root": "enforce"}},
    ],
    ids=lambda fields: str(*fields.values()),
)
def test_no_pod_is_covered_where_the_policy_does_something_else(fields: JSON) -> None:
    assert [*conditions(policy(pool("a100"), **fields), frozenset())] == []


def test_a_namespace_with_other_actions_is_not_covered() -> None:
    override = {"namespaces": ["lab"], "rules": {"pool-toleration": "off"}}
    first = next(conditions(policy(pool("a100"), overrides=[override]), frozenset()))
    assert first.name == "requestsDevice"
    assert 'request.namespace in ["lab"] ? false' in first.expression
