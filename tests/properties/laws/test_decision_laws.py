"""What holds of every decision, whatever the object, the policy and the facts."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st
from msgspec import structs

import strategies
from cases.loading import compiled, policy_spec
from laws.profile import law
from policies.decision import Decision, patched
from policies.engine import decide, validate
from policies.facts import Facts, Request
from policies.finding import Mode
from policies.kubernetes.editor import RemoveOperation, clone
from policies.kubernetes.objects import MalformedObjectError
from policies.policy import Policy
from policies.registry import CHECKS, MUTATIONS
from specs import JSON

pytestmark = pytest.mark.timeout(3600)

POLICIES = strategies.policies()
EXEMPTING = compiled(
    policy_spec("default") | {"exemptions": {"namespaces": ["ops"], "usernames": ["root"]}}
)
SHARED = compiled(policy_spec("fractions") | {"rules": {"device-requests": "off"}})
objects = st.one_of(strategies.pods(), strategies.workloads())
policies = st.sampled_from(list(POLICIES.values()))
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@law
@given(objects, policies, strategies.facts())
def test_a_decision_only_adds_fields_but_for_variables_and_is_idempotent(
    obj: JSON, policy: Policy, facts: Facts
) -> None:
    before = json.dumps(obj)
    decision = decide(obj, policy, facts=facts)
    event(decision.verdict)
    assert json.dumps(obj) == before
    assert decision.original is obj
    assert (decision.mutated is obj) is (json.dumps(decision.mutated) == before)
    removals = tuple(op for op in decision.operations if isinstance(op, RemoveOperation))
    assert all(re.fullmatch(r".*/env/\d+", operation.path) for operation in removals)
    assert_adds_only(patched(obj, removals), decision.mutated, "")
    assert_settled(decision, policy, facts)
    assert_readable(decision)


@law
@given(objects, policies, strategies.facts(), st.sampled_from(["warn", "audit"]))
def test_other_modes_report_what_enforce_does(
    obj: JSON, policy: Policy, facts: Facts, mode: Mode
) -> None:
    enforced = decide(obj, policy, facts=facts)
    for judge in (decide, validate):
        reported = judge(obj, replace(policy, mode=mode), facts=facts)
        assert reported.allowed
        assert reported.mutated is obj
        changes = [finding for finding in reported.findings if finding.rule in MUTATION_IDS]
        unmade = [finding for finding in changes if finding.would == "enforce"]
        # Some templates can only be changed in the Pods that are created from them.
        assert set(enforced.mutations) <= {finding.rule for finding in unmade}
        findings = [
            structs.replace(finding, action=finding.would or finding.action, would=None)
            for finding in reported.findings
            if finding not in unmade
        ]
        assert findings == list(enforced.findings)
        event(f"{mode}: {enforced.verdict}")


@law
@given(strategies.gpu_pods())
def test_a_gpu_fraction_gets_the_same_decision_as_a_whole_gpu(whole: JSON) -> None:
    assume(not whole["spec"].get("nodeName"))
    part = clone(whole)
    del part["spec"]["containers"][0]["resources"]
    part["spec"]["schedulerName"] = "kai-scheduler"
    part["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
    decisions = [decide(each, SHARED) for each in (whole, part)]
    event(decisions[0].verdict)
    # Only the variables of the container with the device differ: a device plugin sets its own.
    first, second = (
        Counter((f.rule, f.reason) for f in each.findings if f.rule != "device-leak")
        for each in decisions
    )
    assert first == second
    # The annotation about the user is a new one, or one more. A scheduler's variable stays.
    of_whole, of_part = (
        [
            each
            for each in decision.operations
            if each.path.startswith("/spec") and not isinstance(each, RemoveOperation)
        ]
        for decision in decisions
    )
    assert of_whole == of_part


@law
@given(strategies.workloads(), strategies.workloads(), st.booleans(), policies, strategies.facts())
def test_findings_of_an_update_are_new_or_known(
    obj: JSON, other: JSON, same: bool, policy: Policy, facts: Facts
) -> None:
    old = {**obj, "metadata": {**obj["metadata"], "labels": {"a": "b"}}} if same else other
    # An update changes no name, and so nothing about which exceptions there are.
    as_now = {**old, "metadata": obj["metadata"]}
    created, before = (decide(each, policy, facts=facts) for each in (obj, as_now))
    updated = decide(obj, policy, update(old), facts)
    event(f"known: {bool(updated.known)}, new: {bool(updated.findings)}")
    if not updated.exemption:
        split = Counter(map(repr, (*updated.findings, *updated.known)))
        assert split == Counter(map(repr, created.findings))
        assert updated.mutated == created.mutated
    for finding in updated.known:
        alike = [each for each in before.findings if each.reason == finding.reason]
        assert any(finding.subjects <= each.subjects for each in alike)


@law
@given(objects, objects, policies, strategies.facts())
def test_an_update_that_changes_only_metadata_has_no_findings(
    obj: JSON, other: JSON, policy: Policy, facts: Facts
) -> None:
    """Match conditions may leave such updates out (registration.match_conditions.differs)."""
    old = {**obj, "metadata": other["metadata"]}
    assert decide(obj, policy, update(old), facts).findings == ()


def update(old: Any) -> Request:
    return Request(operation="UPDATE", old=old)


MUTATION_IDS = [rule.id for rule in MUTATIONS]
RULE_IDS = MUTATION_IDS + [rule.id for rule in CHECKS]


def with_rules(actions: dict[str, str]) -> Policy:
    return compiled(policy_spec("default") | {"rules": actions})


EACH_RULE = {
    action: with_rules(dict.fromkeys(RULE_IDS, action)) for action in ("warn", "audit", "off")
}
EACH_MUTATION = [
    [
        with_rules({**dict.fromkeys(RULE_IDS, "off"), mutation.id: action})
        for action in ("warn", "enforce")
    ]
    for mutation in MUTATIONS
]


@law
@given(objects, strategies.facts())
def test_rules_that_are_not_enforced_neither_mutate_nor_deny(obj: JSON, facts: Facts) -> None:
    for action, policy in EACH_RULE.items():
        decision = decide(obj, policy, facts=facts)
        assert decision.mutated is obj
        assert decision.allowed
        expected = set() if action == "off" else {action}
        assert {finding.action for finding in decision.findings} <= expected
    for warn, enforce in EACH_MUTATION:
        reported = decide(obj, warn, facts=facts).findings
        assert bool(reported) is bool(decide(obj, enforce, facts=facts).mutations)


@law
@given(objects, strategies.facts())
def test_requests_of_exempt_users_and_namespaces_are_allowed_unchanged(
    obj: JSON, facts: Facts
) -> None:
    for exempt in (Request(namespace="ops"), Request(username="root")):
        decision = decide(obj, EXEMPTING, exempt, facts)
        assert (decision.verdict, decision.findings, decision.mutated is obj) == (
            "allowed",
            (),
            True,
        )
        assert decision.exemption


@law
@given(st.data(), objects, strategies.facts())
def test_an_object_with_an_arbitrary_value_is_decided_or_malformed(
    data: st.DataObject, obj: JSON, facts: Facts
) -> None:
    # A copy: examples may share what they are made of.
    spoilt = clone(obj)
    spoil(data, spoilt)
    attempt(spoilt, facts)
    # An old object hinders nothing, whatever it is.
    decide(obj, POLICIES["two pools"], update(spoilt), facts)


@law
@given(anything)
def test_arbitrary_json_is_decided_or_malformed(value: Any) -> None:
    for obj in (value, {"apiVersion": value, "kind": "Pod"}, {"apiVersion": "v1", "kind": value}):
        attempt(obj, Facts())
    for spec in (value, {"template": value}, {"template": {"spec": value}}):
        attempt({"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}, Facts())
        attempt({"apiVersion": "v1", "kind": "Pod", "metadata": value, "spec": spec}, Facts())
        attempt({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": spec}, Facts())


def assert_settled(decision: Decision, policy: Policy, facts: Facts) -> None:
    """Assert that the validating call, or a mutating one again, changes and finds nothing new."""
    mutated = decision.mutated
    again = decide(mutated, policy, facts=facts)
    assert again.operations == ()
    if decision.original["kind"] == "Pod":
        final = validate(mutated, policy, facts=facts)
        assert finding_counts(final) == finding_counts(again) == finding_counts(decision)
    else:
        # What the API server validates is the template as written, and now that is another one.
        assert {f.rule for f in again.findings} <= {f.rule for f in decision.findings}


def finding_counts(decision: Decision) -> Counter[tuple[str, str]]:
    """Return the findings and their number; a path may name a side that was filled in."""
    return Counter((finding.rule, finding.reason) for finding in decision.findings)


def assert_readable(decision: Decision) -> None:
    """Assert that every finding has a place that exists, and sentences that fit together."""
    for finding in decision.findings:
        assert leads_somewhere(decision.mutated, finding.path), finding.path
        for text in (finding.reason, finding.detail, finding.remediation):
            assert text
            assert text == text.strip()
            assert not text.endswith(".")
        assert_advises(finding.remediation)
        assert finding.message == f"{finding.path}: {finding.detail}. {finding.remediation}"


def assert_advises(remediation: str) -> None:
    """Assert that a remediation has at most three sentences."""
    sentences = remediation.split(". ")
    assert len(sentences) <= 3, remediation
    assert all(sentence[0].isupper() for sentence in sentences), remediation


def assert_adds_only(before: Any, after: Any, path: str) -> None:
    """Assert that nothing is gone or changed; null counts as nothing."""
    if before is None:
        return
    assert type(before) is type(after), path
    if isinstance(before, dict):
        for key, value in before.items():
            assert key in after, f"{path}.{key}"
            assert_adds_only(value, after[key], f"{path}.{key}")
    elif isinstance(before, list):
        assert len(after) >= len(before), path
        for index, value in enumerate(before):
            assert_adds_only(value, after[index], f"{path}[{index}]")
    else:
        assert before == after, path


def leads_somewhere(obj: Any, path: str) -> bool:
    """Return whether the path exists, but for its end: a finding may be about what is missing."""
    value = obj
    for step in steps(path):
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return value is None
    return True


def steps(path: str) -> list[str]:
    """Return the steps of ``spec.nodeSelector[nvidia.com/gpu.present]``."""
    found, rest = [], path
    while rest:
        if rest.startswith("["):
            step, _, rest = rest[1:].partition("]")
        else:
            ends = [end for end in (rest.find("."), rest.find("[")) if end >= 0]
            cut = min(ends, default=len(rest))
            step, rest = rest[:cut], rest[cut:]
        found.append(step)
        rest = rest.removeprefix(".")
    return found


def attempt(obj: Any, facts: Facts) -> None:
    try:
        decide(obj, POLICIES["two pools"], facts=facts)
    except MalformedObjectError as error:
        event("malformed")
        if not error.problem or not str(error).endswith(error.problem):
            raise AssertionError(repr(error)) from error


def spoil(data: st.DataObject, obj: JSON) -> None:
    """Put something else in the place of one value somewhere in the object."""
    value: Any = obj
    while True:
        keys = sorted(value) if isinstance(value, dict) else range(len(value))
        key = data.draw(st.sampled_from(keys))
        if (
            not isinstance(value[key], dict | list)
            or not value[key]
            or not data.draw(st.integers(0, 5))
        ):
            value[key] = data.draw(anything)
            return
        value = value[key]
