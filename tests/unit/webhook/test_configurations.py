"""The webhook configurations, as far as a policy and a registration decide on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from policies.excluded_namespaces import ALWAYS_EXCLUDED
from policies.kubernetes.custom_workloads import WELL_KNOWN, CustomWorkloads
from policies.policy import FailurePolicy, Policy
from reviewing import default_policy
from webhook.registration.configurations import Registration, configurations

CUSTOM = "custom-workloads.gpufence.dev"


def webhooks(policy: Policy, **fields: Any) -> dict[str, dict[str, Any]]:
    """The validating webhooks, by name."""
    _, validating = configurations(policy, Registration(url="https://a:1", **fields))
    return {webhook["name"]: webhook for webhook in validating["webhooks"]}


@pytest.mark.parametrize("choice", ["Fail", "Ignore"])
def test_the_policy_says_what_becomes_of_pods_and_workloads_while_nobody_answers(
    choice: FailurePolicy,
) -> None:
    policy = replace(default_policy(), failure_policy=choice)
    mutating, validating = configurations(policy, Registration(url="https://a:1"))
    policies = {w["name"]: w["failurePolicy"] for w in validating["webhooks"]}
    placements = [name for name in policies if name.endswith("-placement.gpufence.dev")]
    # Plain workloads select nodes as well, and are never stopped.
    assert [policies.pop(name) for name in (*placements, CUSTOM)] == ["Ignore"] * 5
    assert set(policies.values()) == {choice} == {mutating["webhooks"][0]["failurePolicy"]}
    assert len(policies) == 4


def test_custom_resources_are_asked_about_but_need_no_answer() -> None:
    custom = webhooks(default_policy())[CUSTOM]
    assert custom["failurePolicy"] == "Ignore"
    asked = {rule["apiGroups"][0]: tuple(rule["resources"]) for rule in custom["rules"]}
    assert asked == dict(WELL_KNOWN)
    assert "pytorchjobs" in asked["kubeflow.org"]
    for rule in custom["rules"]:
        assert rule["apiVersions"] == ["*"]
        assert rule["operations"] == ["CREATE", "UPDATE"]
        # Without the subresources, in which operators keep their state.
        assert not any("/" in resource or "*" in resource for resource in rule["resources"])


def test_the_policy_says_which_custom_resources_are_asked_about() -> None:
    mine = (CustomWorkloads("train.example", ("runs",)),)
    [rule] = webhooks(replace(default_policy(), custom_workloads=mine))[CUSTOM]["rules"]
    assert (rule["apiGroups"], rule["resources"]) == (["train.example"], ["runs"])
    assert CUSTOM not in webhooks(replace(default_policy(), custom_workloads=()))


def test_what_a_cluster_needs_to_come_up_is_never_asked_about() -> None:
    policy = default_policy()
    for webhook in webhooks(policy, excluded_namespaces=frozenset({"more"})).values():
        [selector] = webhook["namespaceSelector"]["matchExpressions"]
        assert selector["operator"] == "NotIn"
        assert set(selector["values"]) == {"more", *ALWAYS_EXCLUDED, *policy.exemptions.namespaces}
