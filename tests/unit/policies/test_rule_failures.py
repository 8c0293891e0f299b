"""An error in a rule: it denies if the rule enforces, and only then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from deciding import deployment
from planted import plant, plant_error
from policies.context import Context
from policies.decision import Decision
from policies.engine import MOST_FINDINGS, decide, mutate, validate
from policies.facts import Request
from policies.finding import Action, Finding
from policies.kubernetes.objects import JSONObject, OversizedObjectError
from policies.kubernetes.pod import Pod
from policies.registry import RULES, Rule
from reviewing import default_policy, gpu_pod

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
each_object = pytest.mark.parametrize("make", [gpu_pod, lambda: deployment(gpu_pod())])
Make = Callable[[], JSONObject]


class PlantedError(Exception):
    """The error of a rule, which no other code raises."""


def failed(decision: Decision) -> set[str]:
    assert all(isinstance(failure.error, PlantedError) for failure in decision.failures)
    return {failure.rule for failure in decision.failures}


def named(rule_id: str) -> Rule:
    return next(rule for rule in RULES if rule.id == rule_id)


@each_rule
@each_object
def test_an_error_in_a_rule_that_enforces_is_raised(
    rule: Rule, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_error(monkeypatch, rule, PlantedError())
    with pytest.raises(PlantedError):
        decide(make(), default_policy(**{rule.id: "enforce"}))


@each_rule
@each_object
@pytest.mark.parametrize("action", ["warn", "audit"])
def test_an_object_is_decided_without_a_failing_rule_that_does_not_enforce(
    rule: Rule, make: Make, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = decide(make(), default_policy(**{rule.id: "off"}))
    plant_error(monkeypatch, rule, PlantedError())
    policy = default_policy(**{rule.id: action})
    decision = decide(make(), policy)
    assert failed(decision) == {rule.id}
    assert decision.verdict == expected.verdict
    assert decision.operations == expected.operations
    assert decision.findings == expected.findings
    assert failed(validate(make(), policy)) == {rule.id}


@each_rule
@pytest.mark.parametrize("mode", ["warn", "audit"])
def test_no_failing_rule_denies_in_a_mode_that_does_not_enforce(
    rule: Rule, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_error(monkeypatch, rule, PlantedError())
    policy = replace(default_policy(), mode=mode)
    assert failed(validate(gpu_pod(), policy)) == {rule.id}
    assert mutate(gpu_pod(), policy) == ()


def test_an_error_on_the_stored_object_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = gpu_pod()
    stored["spec"]["schedulerName"] = "of-the-stored-object"

    def check(pod: Pod, context: Context) -> Iterator[Finding]:
        if pod.spec.scheduler_name:
            raise PlantedError
        yield Finding("needs-root", "spec", "reason", "detail")

    plant(monkeypatch, named("needs-root"), check=check)
    request = Request(operation="UPDATE", old=deployment(stored))
    decision = validate(deployment(gpu_pod()), default_policy(), request)
    assert failed(decision) == {"needs-root"}
    assert "needs-root" in {finding.rule for finding in decision.findings}


def test_findings_that_only_warn_never_make_an_object_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rule = named("stuck-rollout")
    rest = len(decide(gpu_pod(), default_policy(stuck_rollout="off")).findings)

    def find(count: int, action: Action = "enforce") -> None:
        def check(pod: Pod, context: Context) -> Iterator[Finding]:
            yield from [Finding(rule.id, "spec", "reason", "detail", action=action)] * count

        plant(monkeypatch, rule, check=check)

    find(MOST_FINDINGS - rest)
    assert len(decide(gpu_pod(), default_policy()).findings) == MOST_FINDINGS
    find(MOST_FINDINGS - rest + 1)
    decision = decide(gpu_pod(), default_policy())
    assert (decision.allowed, len(decision.findings)) == (True, rest)
    [failure] = decision.failures
    assert isinstance(failure.error, OversizedObjectError)
    with pytest.raises(OversizedObjectError):
        decision.checked()
    with pytest.raises(OversizedObjectError):
        decide(gpu_pod(), default_policy(stuck_rollout="enforce"))
    find(MOST_FINDINGS + 1, "warn")
    decision = decide(gpu_pod(), default_policy(stuck_rollout="enforce"))
    assert (decision.allowed, len(decision.findings)) == (True, MOST_FINDINGS)
