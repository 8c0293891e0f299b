"""The admission policies as objects. End-to-end tests try what they decide."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from policies.api_servers import IN_TREE_RULES
from policies.finding import Mode
from policies.policy import Override, Policy
from reviewing import default_policy
from specs import JSON
from webhook.controller.text.objects import (
    BINDING_KIND,
    LABELS,
    POLICY_KIND,
    Registration,
    admission_policies,
    all_names,
)

QUIET: tuple[Mode, ...] = ("warn", "audit")
TRESPASS, LEAK = "gpufence-pool-trespass", "gpufence-device-leak"


def by_name(policy: Policy, **fields: Any) -> dict[tuple[str, str], JSON]:
    """The specs of the objects, by kind and name."""
    objects = admission_policies(policy, Registration(**fields))
    return {(obj["kind"], obj["metadata"]["name"]): obj["spec"] for obj in objects}


def test_each_rule_has_a_labeled_policy_with_a_description_and_a_binding_that_denies() -> None:
    found = by_name(default_policy())
    kinds = (POLICY_KIND, BINDING_KIND)
    assert list(found) == [(kind, name) for name in (TRESPASS, LEAK) for kind in kinds]
    for obj in admission_policies(default_policy(), Registration()):
        assert obj["metadata"]["labels"] == LABELS
        if obj["kind"] == POLICY_KIND:
            assert obj["metadata"]["annotations"]["gpufence.dev/description"].startswith("Denies ")
            assert obj["spec"]["failurePolicy"] == "Fail"
        else:
            name = obj["metadata"]["name"]
            assert (obj["spec"]["policyName"], obj["spec"]["validationActions"]) == (name, ["Deny"])


def test_a_binding_matches_what_its_policy_does_whatever_the_policy_exempts() -> None:
    """The chart contains the bindings, which the controller may not write."""
    exemptions = replace(default_policy().exemptions, namespaces=frozenset({"agents"}))
    made = by_name(replace(default_policy(), exemptions=exemptions))
    for name in (TRESPASS, LEAK):
        matched = made[POLICY_KIND, name]["matchConstraints"]
        [expression] = matched["namespaceSelector"]["matchExpressions"]
        expression["values"].remove("agents")
        assert made[BINDING_KIND, name]["matchResources"] == matched
    owned = admission_policies(default_policy(), Registration(owner={"uid": "1"}))
    assert all(
        ("ownerReferences" in obj["metadata"]) == (obj["kind"] == POLICY_KIND) for obj in owned
    )


def test_a_mode_in_which_nothing_denies_has_no_policies() -> None:
    assert not [mode for mode in QUIET if by_name(replace(default_policy(), mode=mode))]


def test_a_rule_that_enforces_in_one_namespace_has_a_policy() -> None:
    lab = Override(namespaces=("lab",), rules={"device-leak": "enforce"})
    policy = replace(default_policy(**{"device-leak": "warn"}), overrides=(lab,))
    assert (POLICY_KIND, LEAK) in by_name(policy)


def test_the_policy_changes_nothing_but_the_literals() -> None:
    """Whatever it says, also the words in whose place the literals are."""
    usernames = frozenset({"POLICY", 'NAMES"]'})
    exemptions = replace(default_policy().exemptions, usernames=usernames)
    strange = replace(default_policy(), exemptions=exemptions)
    for usual, other in zip(
        admission_policies(default_policy(), Registration()),
        admission_policies(strange, Registration()),
        strict=True,
    ):
        shown = str(other).replace(r'["NAMES\\"]", "POLICY"]', "[]")
        assert shown == str(usual)


@pytest.mark.parametrize("rule", IN_TREE_RULES)
def test_no_line_of_an_expression_is_long(rule: str) -> None:
    """A security reviewer reads what is printed."""
    spec = by_name(default_policy())[POLICY_KIND, f"gpufence-{rule}"]
    expressions = [each["expression"] for each in spec["matchConditions"]]
    expressions += [each["expression"] for each in spec["variables"][1:]]
    expressions += [spec["validations"][0]["messageExpression"]]
    for expression in expressions:
        assert max(map(len, expression.split("\n"))) <= 110, expression


def test_what_both_rules_say_has_one_text() -> None:
    """A test of one rule is so one of the other."""
    made = by_name(default_policy())
    trespass, leak = (
        {
            each["name"]: re.sub(r"\Asize\(.*\n", "", each["expression"])
            for each in made[POLICY_KIND, name]["matchConditions"]
            + made[POLICY_KIND, name]["variables"]
        }
        for name in (TRESPASS, LEAK)
    )
    own = {"policy", "advice"}
    shared = (trespass.keys() & leak.keys()) - own
    assert {"is-enforced", "met", "isDenied"} <= shared
    assert {name for name in shared if trespass[name] != leak[name]} == set()


def test_all_names_lists_the_name_of_every_object() -> None:
    made = {name for _, name in by_name(default_policy(), name="fence")}
    assert made < set(all_names("fence"))
    # Objects of earlier versions.
    assert {"fence-pods", "fence-pods-warn", "fence-pods-audit"} < set(all_names("fence"))
