"""A bug in a rule: answered, counted, logged, and over with the request that met it."""

from __future__ import annotations

import logging

import pytest

from planted import plant_error
from policies.engine import decide
from policies.kubernetes.objects import MalformedObjectError
from policies.registry import CHECKS, MUTATIONS, RULES, Rule
from reviewing import UID, default_policy, gpu_pod, plain_pod, review
from served import Hook, MakeHook

BUGS = (
    KeyError("spec"),
    ZeroDivisionError("division by zero"),
    RecursionError("maximum recursion depth exceeded"),
    MemoryError(),
    AssertionError("never happens"),
    StopIteration(),
    ValueError("with a \n line break"),
)
OF_EVERY_KIND = [
    pytest.param(rule, bug, id=f"{rule.id}-{type(bug).__name__}")
    for rule in RULES
    for bug in (BUGS if rule.id in ("pool-trespass", "pool-toleration") else BUGS[:1])
]


async def rule_failures(hook: Hook) -> dict[str, float]:
    """Return the counters of rules that failed; those of all others are 0."""
    counted = await hook.metric("gpufence_rule_failures_total")
    return {rule: count for rule, count in counted.items() if count}


async def assert_internal_error(hook: Hook, path: str) -> None:
    response = await hook.response(path, review(gpu_pod()))
    assert response == {
        "uid": UID,
        "allowed": False,
        "status": {
            "code": 500,
            "reason": "InternalError",
            "message": "an internal error of gpufence prevents the check of this Pod, so gpufence "
            "rejects it. The Pod is not the cause: contact the cluster administrator, who finds "
            f"the error under uid {UID} in the log of gpufence. An exemption in the policy, or "
            "another action for the rule in the log, admits such objects until the error is fixed",
        },
    }


@pytest.mark.parametrize(("rule", "bug"), OF_EVERY_KIND)
async def test_an_error_in_a_rule_that_enforces_denies(
    make_hook: MakeHook,
    rule: Rule,
    bug: BaseException,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hook = await make_hook(default_policy(**{rule.id: "enforce"}))
    path = "/validate" if rule in CHECKS else "/mutate"
    with monkeypatch.context() as planted:
        plant_error(planted, rule, bug)
        await assert_internal_error(hook, path)
        if rule not in MUTATIONS:
            # What the mutating webhook does, it does without the checks.
            assert "patch" in await hook.response("/mutate", review(gpu_pod()))
    assert await hook.metric("gpufence_internal_errors_total") == {"": 1}
    assert await rule_failures(hook) == {}
    counted = await hook.metric("gpufence_admission_requests_total")
    assert counted[f'{{kind="Pod",operation="CREATE",path="{path}",result="error"}}'] == 1
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage() == "internal error"
    assert record.exc_info
    assert (await hook.response(path, review(plain_pod()))).get("status", {}).get("code") != 500


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
async def test_an_error_in_a_rule_that_does_not_enforce_is_left_out(
    make_hook: MakeHook,
    rule: Rule,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pod = decide(gpu_pod(), default_policy()).mutated
    plant_error(monkeypatch, rule, KeyError("planted"))
    hook = await make_hook(default_policy(**{rule.id: "warn"}))
    assert (await hook.response("/mutate", review(pod)))["allowed"]
    assert (await hook.response("/validate", review(pod)))["allowed"]
    count = (rule in MUTATIONS) + (rule in CHECKS)
    assert await rule_failures(hook) == {f'{{rule="{rule.id}"}}': count}
    assert await hook.metric("gpufence_internal_errors_total") == {"": 0}
    records = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in records] == ["rule failed"] * count
    assert all(record.exc_info for record in records)
    assert {vars(record)["gpufence_fields"]["rule"] for record in records} == {rule.id}


async def test_a_warning_that_finds_an_object_malformed_does_not_count_as_a_bug(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="gpufence")
    [rule] = [rule for rule in RULES if rule.id == "stuck-rollout"]
    plant_error(monkeypatch, rule, MalformedObjectError("spec", "is odd"))
    pod = decide(gpu_pod(), default_policy()).mutated
    assert (await hook.response("/validate", review(pod)))["allowed"]
    assert await rule_failures(hook) == {}
    [record] = caplog.records
    assert (record.getMessage(), record.levelno) == ("malformed object", logging.INFO)


async def test_a_denial_is_logged_in_one_line_and_an_allowed_pod_is_not_logged(
    hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="gpufence")
    pod = plain_pod()
    await hook.response("/mutate", review(pod))
    await hook.response("/validate", review(pod))
    assert caplog.records == []
    pod["spec"]["nodeSelector"] = {"nvidia.com/gpu.present": "true"}
    pod["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    pod["metadata"] = {"generateName": "web-"}
    await hook.response("/validate", review(pod, namespace="shop", dryRun=True))
    [record] = caplog.records
    assert record.getMessage() == "denied"
    assert vars(record)["gpufence_fields"] == {
        "path": "/validate",
        "uid": UID,
        "operation": "CREATE",
        "kind": "Pod",
        "namespace": "shop",
        "name": "web-",
        "user": "jane",
        "dryRun": True,
        "rules": ["pool-trespass"],
    }
