"""The in-tree policies as objects. What they decide, tests/e2e/test_admission_policies.py tries."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from policies.document.model import parse_policy
from policies.excluded_namespaces import ALWAYS_EXCLUDED
from policies.finding import Action
from policies.kubernetes.names import NameSet
from policies.policy import ExceptionEntry, Policy
from reviewing import default_document, default_policy
from webhook.registration.admission_policies.objects import (
    BINDING_KIND,
    COMPILED_RULES,
    POLICY_KIND,
    Target,
    admission_policies,
    all_names,
    other_action,
)

JSON = dict[str, Any]
PLACES = ("pods", "workloads", "cronjobs", "podtemplates")
OFF: dict[str, Action] = dict.fromkeys(COMPILED_RULES, "off")


def by_name(policy: Policy, **fields: Any) -> dict[tuple[str, str], JSON]:
    """The specs of the objects, by kind and name."""
    objects = admission_policies(policy, Target(**fields))
    return {(obj["kind"], obj["metadata"]["name"]): obj["spec"] for obj in objects}


def policy_with_actions(**actions: Action) -> Policy:
    """The default policy with other actions; an underscore stands for a dash."""
    policy = default_policy()
    chosen = {rule.replace("_", "-"): action for rule, action in actions.items()}
    return replace(policy, actions={**policy.actions, **chosen})


def test_each_pod_template_location_has_a_policy_and_a_deny_binding() -> None:
    found = by_name(default_policy())
    names = [f"gpufence-{place}-deny" for place in PLACES]
    assert list(found) == [(kind, n) for n in names for kind in (POLICY_KIND, BINDING_KIND)]
    for name in names:
        assert found[BINDING_KIND, name] == {"policyName": name, "validationActions": ["Deny"]}


@pytest.mark.parametrize(
    ("action", "validation_action"),
    [("warn", "Warn"), ("audit", "Audit")],
)
def test_a_rule_with_another_action_has_separate_policies(
    action: Action, validation_action: str
) -> None:
    found = by_name(policy_with_actions(device_leak=action))
    denying = found[POLICY_KIND, "gpufence-pods-deny"]["validations"]
    other = found[POLICY_KIND, f"gpufence-pods-{action}"]["validations"]
    assert [v["message"].split(":")[0] for v in denying] == ["pool-trespass"]
    assert [v["message"].split(":")[0] for v in other] == ["device-leak"]
    binding = found[BINDING_KIND, f"gpufence-pods-{action}"]
    assert binding["validationActions"] == [validation_action]


def test_rules_that_are_off_have_no_policy() -> None:
    policy = default_policy()
    assert not by_name(replace(policy, actions={**policy.actions, **OFF}))


def test_a_namespace_override_applies_to_the_policy_of_its_action() -> None:
    policy = default_policy()
    overrides: dict[str, dict[str, Action]] = {
        "lab": {**policy.actions, "device-leak": "warn", "pool-trespass": "off"}
    }
    found = by_name(replace(policy, overrides=overrides))
    trespass, leak = found[POLICY_KIND, "gpufence-pods-deny"]["validations"]
    assert 'request.namespace in ["lab"]' in trespass["expression"]
    assert 'request.namespace in ["lab"]' in leak["expression"]
    [warned] = found[POLICY_KIND, "gpufence-pods-warn"]["validations"]
    assert '!(request.namespace in ["lab"])' in warned["expression"]


@pytest.mark.parametrize("action", ["enforce", "warn", "audit"])
@pytest.mark.parametrize("rule", sorted(COMPILED_RULES))
def test_law_compiled_prefix_overrides_agree_with_the_engine(rule: str, action: Action) -> None:
    document = default_document() | {
        "overrides": [
            {"namespaces": ["team-*", "lab"], "rules": {"pool-trespass": "warn"}},
            {"namespaces": ["team-a-*"], "rules": {"pool-trespass": "enforce"}},
            {"namespaces": ["team-a-1"], "rules": {"pool-trespass": "audit", "device-leak": "off"}},
            {"namespaces": ["la*"], "rules": {"device-leak": "warn"}},
        ]
    }
    policy = parse_policy(document).compile()
    elsewhere = other_action(rule, action, policy)
    for namespace in ("team-x", "team-a-1", "team-a-2", "team", "lab", "labs", "a"):
        expected = policy.actions_in(namespace)[rule] != action
        if elsewhere is None or elsewhere == "":
            assert expected is (elsewhere is None)
        else:
            translated = elsewhere.replace("!", " not ").replace("&&", "and").replace("||", "or")
            translated = translated.replace("request.namespace", repr(namespace))
            # The expressions are the project's own.
            assert eval(translated.replace("startsWith", "startswith")) is expected  # noqa: S307


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
        policy.exemptions,
        usernames=frozenset({"robot"}),
        runtime_classes=frozenset({"node-agent"}),
    )
    spec = by_name(replace(policy, exemptions=exemptions))[POLICY_KIND, "gpufence-cronjobs-deny"]
    [condition] = spec["matchConditions"]
    assert '!(request.userInfo.username in ["robot"])' in condition["expression"]
    below = "object.spec.jobTemplate.spec.template.spec.?runtimeClassName"
    assert f'!({below}.orValue("") in ["node-agent"])' in condition["expression"]


def policy_with_exception(**fields: Any) -> Policy:
    given = {
        "rules": frozenset({"pool-trespass"}),
        "namespaces": NameSet.of(["legacy"]),
        "kinds": frozenset({"Deployment"}),
        "names": NameSet.of(["web-*"]),
        "reason": "moves next month",
        "expires": date(2027, 3, 1),
    }
    return replace(default_policy(), exceptions=(ExceptionEntry(**{**given, **fields}),))


def validation(policy: Policy, place: str, today: date | None = None) -> str:
    """The expression of pool-trespass at one place."""
    spec = by_name(policy, today=today)[POLICY_KIND, f"gpufence-{place}-deny"]
    expression: str = spec["validations"][0]["expression"]
    return expression


def test_an_exception_is_compiled_with_all_its_fields() -> None:
    expression = validation(policy_with_exception(), "workloads")
    assert 'request.namespace in ["legacy"]' in expression
    assert 'request.kind.kind in ["Deployment"]' in expression
    assert 'object.metadata.name.startsWith("web-")' in expression
    assert 'string(object.metadata.creationTimestamp) < "2027-03-01"' in expression


def test_an_exception_is_compiled_only_for_its_kinds_and_rules() -> None:
    plain = validation(default_policy(), "pods")
    assert validation(policy_with_exception(), "pods") == plain
    assert validation(policy_with_exception(kinds=frozenset()), "pods") != plain
    other = frozenset({"device-leak"})
    assert validation(policy_with_exception(kinds=frozenset(), rules=other), "pods") == plain


def test_an_expired_exception_is_omitted() -> None:
    plain = validation(default_policy(), "workloads")
    assert validation(policy_with_exception(), "workloads", date(2027, 2, 28)) != plain
    assert validation(policy_with_exception(), "workloads", date(2027, 3, 1)) == plain


def test_static_policies_have_the_static_suffix_and_no_params() -> None:
    for obj in admission_policies(default_policy(), Target(static=True)):
        assert obj["metadata"]["name"].endswith(".static.k8s.io")
        assert obj["spec"].get("policyName", ".static.k8s.io").endswith(".static.k8s.io")
        assert "paramKind" not in obj["spec"]
        assert "paramRef" not in obj["spec"]


def test_all_names_lists_the_name_of_every_possible_object() -> None:
    policy = default_policy()
    others: tuple[Action, ...] = ("warn", "audit")
    overrides = {str(action): {**policy.actions, "pool-trespass": action} for action in others}
    made = {name for _, name in by_name(replace(policy, overrides=overrides), name="fence")}
    assert made == set(all_names("fence"))
