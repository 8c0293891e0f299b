"""A bug in a rule: answered, counted, logged, and over with the request that met it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from planted import plant_error
from policies import engine
from policies.context import Context
from policies.engine import decide
from policies.finding import Finding
from policies.kubernetes.editor import Addition
from policies.kubernetes.objects import MalformedObjectError
from policies.kubernetes.pod import Pod
from policies.registry import CHECKS, MUTATIONS, RULES, Rule
from reviewing import UID, default_policy, gpu_pod, plain_pod, review
from served import Hook, MakeHook

BUGS = pytest.mark.parametrize(
    "bug",
    [
        KeyError("spec"),
        ZeroDivisionError("division by zero"),
        RecursionError("maximum recursion depth exceeded"),
        MemoryError(),
        AssertionError("never happens"),
        StopIteration(),
        ValueError("with a \n line break"),
    ],
    ids=lambda bug: type(bug).__name__,
)

Break = Callable[[BaseException], None]
PODS = ("all", "requesting", "gpu")


@pytest.fixture
def break_check(monkeypatch: pytest.MonkeyPatch) -> Break:
    """Return what puts a bug into the rule pool-trespass."""

    def put(bug: BaseException) -> None:
        def check(pod: Pod, context: Context) -> Iterator[Finding]:
            raise bug

        broken = Rule(id="pool-trespass", title="", check=check)
        monkeypatch.setattr(engine, "CHECKS_BY_PODS", dict.fromkeys(PODS, (broken,)))

    return put


@pytest.fixture
def break_mutation(monkeypatch: pytest.MonkeyPatch) -> Break:
    """Return what puts a bug into the rule pool-toleration."""

    def put(bug: BaseException) -> None:
        def additions(pod: Pod, context: Context) -> Iterator[Addition]:
            raise bug

        broken = Rule(id="pool-toleration", title="", changes=additions)
        monkeypatch.setattr(engine, "MUTATIONS_BY_PODS", dict.fromkeys(PODS, (broken,)))

    return put


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


@BUGS
async def test_a_bug_in_a_check_denies_with_an_internal_error(
    hook: Hook,
    break_check: Break,
    bug: BaseException,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    break_check(bug)
    await assert_internal_error(hook, "/validate")
    # What the mutating webhook does, it does without the checks.
    assert "patch" in await hook.response("/mutate", review(gpu_pod()))
    assert await hook.metric("gpufence_internal_errors_total") == {"": 1}
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage() == "internal error"
    assert record.exc_info
    monkeypatch.undo()
    assert await hook.response("/validate", review(plain_pod())) == {"uid": UID, "allowed": True}


@BUGS
async def test_a_bug_in_a_mutation_denies_with_an_internal_error(
    hook: Hook, break_mutation: Break, bug: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_mutation(bug)
    await assert_internal_error(hook, "/mutate")
    assert await hook.metric("gpufence_internal_errors_total") == {"": 1}
    assert await hook.metric("gpufence_admission_requests_total") == {
        '{kind="Pod",operation="CREATE",path="/mutate",result="error"}': 1
    }
    monkeypatch.undo()
    assert "patch" in await hook.response("/mutate", review(gpu_pod()))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
async def test_an_error_in_a_rule_that_enforces_denies(
    make_hook: MakeHook, rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_error(monkeypatch, rule, KeyError("planted"))
    hook = await make_hook(default_policy(**{rule.id: "enforce"}))
    await assert_internal_error(hook, "/validate" if rule in CHECKS else "/mutate")
    assert await hook.metric("gpufence_internal_errors_total") == {"": 1}
    assert await hook.metric("gpufence_rule_failures_total") == {}


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
    assert await hook.metric("gpufence_rule_failures_total") == {f'{{rule="{rule.id}"}}': count}
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
    assert await hook.metric("gpufence_rule_failures_total") == {}
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
