"""The in-tree policies as objects. What they decide, tests/e2e/test_admission_policies.py tries."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from policies.exemptions import ALWAYS_EXCLUDED
from policies.finding import Action
from policies.kubernetes.field_types import NameSet
from policies.policy import ExceptionEntry, Override, Policy
from reviewing import default_policy
from specs import default_spec, policy_of
from webhook.controller.cel.admission_policies import (
    BINDING_KIND,
    COMPILED_RULES,
    POLICY_KIND,
    admission_policies,
    all_names,
)
from webhook.controller.cel.configurations import DESCRIPTION, Registration
from webhook.controller.cel.pods import in_namespaces

JSON = dict[str, Any]
OFF: dict[str, Action] = dict.fromkeys(COMPILED_RULES, "off")


def by_name(
    policy: Policy, today: date | None = None, **fields: Any
) -> dict[tuple[str, str], JSON]:
    """The specs of the objects, by kind and name."""
    objects = admission_policies(policy, Registration(**fields), today=today)
    return {(obj["kind"], obj["metadata"]["name"]): obj["spec"] for obj in objects}


def policy_with_actions(**actions: Action) -> Policy:
    """The default policy with other actions; an underscore stands for a dash."""
    policy = default_policy()
    chosen = {rule.replace("_", "-"): action for rule, action in actions.items()}
    return replace(policy, rules={**policy.rules, **chosen})


def test_one_policy_with_a_description_and_a_deny_binding_has_all_enforced_rules() -> None:
    name = "gpufence-pods"
    found = by_name(default_policy())
    assert list(found) == [(kind, name) for kind in (POLICY_KIND, BINDING_KIND)]
    assert found[BINDING_KIND, name] == {"policyName": name, "validationActions": ["Deny"]}
    policy, _ = admission_policies(default_policy(), Registration())
    assert policy["metadata"]["annotations"][DESCRIPTION].startswith("Denies ")
    [validation] = policy["spec"]["validations"]
    assert validation["messageExpression"] == 'variables.findings.join(". ")'
    assert variables(policy["spec"])["findings"] == "variables.trespasses + variables.leaks"


@pytest.mark.parametrize(("action", "validation_action"), [("warn", "Warn"), ("audit", "Audit")])
def test_a_rule_with_another_action_has_a_policy_of_that_name(
    action: Action, validation_action: str
) -> None:
    found = by_name(policy_with_actions(device_leak=action))
    enforced = variables(found[POLICY_KIND, "gpufence-pods"])
    assert enforced["findings"] == "variables.trespasses"
    other = variables(found[POLICY_KIND, f"gpufence-pods-{action}"])
    assert other["findings"] == "variables.leaks"
    binding = found[BINDING_KIND, f"gpufence-pods-{action}"]
    assert binding["validationActions"] == [validation_action]


def test_rules_that_are_off_have_no_policy() -> None:
    policy = default_policy()
    assert not by_name(replace(policy, rules={**policy.rules, **OFF}))


def test_a_namespace_override_applies_to_the_policy_of_its_action() -> None:
    policy = default_policy()
    lab = Override(("lab",), {"device-leak": "warn", "pool-trespass": "off"})
    found = by_name(replace(policy, overrides=(lab,)))
    for name, findings, has_action in (
        ("pods", "trespasses", False),
        ("pods", "leaks", False),
        ("pods-warn", "leaks", True),
    ):
        excused = variables(found[POLICY_KIND, f"gpufence-{name}"])[findings]
        assert f'request.namespace in ["lab"] ? {str(not has_action).lower()}' in excused


@pytest.mark.parametrize("action", ["enforce", "warn", "audit"])
@pytest.mark.parametrize("rule", sorted(COMPILED_RULES))
def test_law_compiled_prefix_overrides_agree_with_the_engine(rule: str, action: Action) -> None:
    spec = default_spec() | {
        "overrides": [
            {"namespaces": ["team-*", "lab"], "rules": {"pool-trespass": "warn"}},
            {"namespaces": ["team-a-*"], "rules": {"pool-trespass": "enforce"}},
            {"namespaces": ["team-a-1"], "rules": {"pool-trespass": "audit", "device-leak": "off"}},
            {"namespaces": ["la*"], "rules": {"device-leak": "warn"}},
        ]
    }
    policy = policy_of(spec)
    elsewhere = in_namespaces(policy, lambda actions: actions[rule] != action)
    for namespace in ("team-x", "team-a-1", "team-a-2", "team", "lab", "labs", "a"):
        expected = policy.actions_in(namespace)[rule] != action
        if elsewhere in ("true", "false"):
            assert expected is (elsewhere == "true")
        else:
            # Each line has a condition and a value; the last one has the value alone.
            *choices, last = elsewhere.strip("()").split("\n  : ")
            values = [choice.split(" ? ") for choice in choices]
            found = [
                value
                for condition, value in values
                # The expressions are the project's own.
                if eval(  # noqa: S307
                    condition.replace("||", "or")
                    .replace("request.namespace", repr(namespace))
                    .replace("startsWith", "startswith")
                )
            ]
            assert [*found, last][0] == str(expected).lower()


def test_policies_exclude_the_namespaces_that_the_webhook_excludes() -> None:
    policy = default_policy()
    exempt = {*ALWAYS_EXCLUDED, *policy.exemptions.namespaces, "release"}
    for (kind, _), spec in by_name(policy, excluded_namespaces=frozenset({"release"})).items():
        if kind == POLICY_KIND:
            [selector] = spec["matchConstraints"]["namespaceSelector"]["matchExpressions"]
            assert selector["operator"] == "NotIn"
            assert set(selector["values"]) == exempt


def test_exempt_users_and_runtime_classes_are_match_conditions() -> None:
    policy = default_policy()
    exemptions = replace(
        policy.exemptions, usernames=frozenset({"robot"}), runtime_classes=frozenset({"node-agent"})
    )
    spec = by_name(replace(policy, exemptions=exemptions))[POLICY_KIND, "gpufence-pods"]
    [condition] = spec["matchConditions"]
    assert '!(request.userInfo.username in ["robot"])' in condition["expression"]
    exempt = 'pod.spec.?runtimeClassName.orValue("") in ["node-agent"]'
    assert exempt in condition["expression"]


def policy_with_exception(**fields: Any) -> Policy:
    given = {
        "rules": frozenset({"pool-trespass"}),
        "namespaces": NameSet(["legacy"]),
        "kinds": frozenset({"Deployment"}),
        "names": NameSet(["web-*"]),
        "reason": "moves next month",
        "expires": date(2027, 3, 1),
    }
    return replace(default_policy(), exceptions=(ExceptionEntry(**{**given, **fields}),))


def variables(spec: JSON) -> dict[str, str]:
    return {variable["name"]: variable["expression"] for variable in spec["variables"]}


def excused(policy: Policy, today: date | None = None) -> str:
    """Where pool-trespass does not apply."""
    spec = by_name(policy, today=today)[POLICY_KIND, "gpufence-pods"]
    found = variables(spec)["trespasses"]
    return found if "overrides and exceptions" in found else ""


def test_an_exception_is_compiled_with_all_its_fields() -> None:
    expression = excused(policy_with_exception())
    assert 'request.namespace in ["legacy"]' in expression
    assert 'request.kind.kind in ["Deployment"]' in expression
    assert 'object.metadata.name.startsWith("web-")' in expression
    assert 'string(object.metadata.creationTimestamp) < "2027-03-01"' in expression


def test_an_exception_is_compiled_only_for_its_rules() -> None:
    assert excused(policy_with_exception(rules=frozenset()))
    assert not excused(policy_with_exception(rules=frozenset({"device-leak"})))


def test_an_expired_exception_is_omitted() -> None:
    assert excused(policy_with_exception(), date(2027, 2, 28))
    assert not excused(policy_with_exception(), date(2027, 3, 1))


def test_no_line_of_an_expression_is_long() -> None:
    """A security reviewer reads what is printed."""
    for obj in admission_policies(default_policy(), Registration()):
        for variable in obj["spec"].get("variables", ()):
            assert max(map(len, variable["expression"].split("\n"))) < 200, variable["name"]


def test_static_policies_have_the_static_suffix_and_no_params() -> None:
    for obj in admission_policies(default_policy(), Registration(), static=True):
        assert obj["metadata"]["name"].endswith(".static.k8s.io")
        assert obj["spec"].get("policyName", ".static.k8s.io").endswith(".static.k8s.io")
        assert "paramKind" not in obj["spec"]
        assert "paramRef" not in obj["spec"]


def test_all_names_lists_the_name_of_every_possible_object() -> None:
    policy = default_policy()
    others: tuple[Action, ...] = ("warn", "audit")
    overrides = tuple(
        Override((action,), dict.fromkeys(COMPILED_RULES, action)) for action in others
    )
    made = {name for _, name in by_name(replace(policy, overrides=overrides), name="fence")}
    assert made == set(all_names("fence"))
