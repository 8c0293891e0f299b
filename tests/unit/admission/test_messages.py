"""Messages: denials word for word, warnings and annotations within their limits."""

from __future__ import annotations

import re
from typing import Any

import pytest

from policies.decision import Decision
from policies.engine import mutate
from policies.finding import Action, Finding
from reviewing import gpu_pod
from specs import default_spec, policy_of
from webhook.serve.admission.messages import (
    DENIAL_LENGTH,
    WARNING_LENGTH,
    assigned_user,
    audit_annotations,
    denial,
    warnings,
)
from webhook.serve.admission.policies import not_followed


def finding(**fields: Any) -> Finding:
    values: dict[str, Any] = {
        "rule": "unequal-device-limits",
        "path": "spec.containers[0].resources",
        "reason": "request and limit of a device differ",
        "detail": 'container "train" requests 1 of nvidia.com/gpu, but is limited to 2',
        "remediation": "Write the same whole number on both sides",
        "action": "warn",
    }
    return Finding(**values | fields)


def test_a_long_denial_states_the_number_of_omitted_findings() -> None:
    found = [finding(detail=f"tolerates taint {number}") for number in range(4000)]
    heading, *lines, last, help_ = denial(found, "Pod ml/a", "Ask in #gpus").split("\n")
    assert heading == "gpufence found 4,000 problems in Pod ml/a:"
    left = f"{4000 - len(lines):,}"
    assert last == f"- and {left} more; to see all, run `gpufence check` on the manifest"
    assert help_ == "Ask in #gpus"
    assert DENIAL_LENGTH * 0.9 < sum(map(len, lines)) <= DENIAL_LENGTH


def test_a_finding_longer_than_the_denial_limit_is_truncated() -> None:
    text = denial([finding(detail='"train", ' * 10_000)], "Pod")
    assert len(text) < DENIAL_LENGTH + 100
    assert text.endswith("…")


START = "unequal-device-limits: spec.containers[0].resources: "
REASON = "request and limit of a device differ"
NUMBERS = "the Pod needs 16 nvidia.com/gpu on one node, but each offers at most 8"
REMEDIATION = "Write the same whole number on both sides"


def test_a_warning_has_what_fits_of_a_finding(subtests: pytest.Subtests) -> None:
    long = "long " * 50
    for detail, remediation, text in (
        ("1 is not 2", REMEDIATION, f"1 is not 2. {REMEDIATION}"),
        # A long one without its detail, numbers before the remediation, and no part of a sentence.
        (long, REMEDIATION, f"{REASON}. {REMEDIATION}"),
        (NUMBERS, "split the work " * 15, NUMBERS),
        (long, f"Remove it. {'Or not ' * 30}", f"{REASON}. Remove it"),
        (long, "privileged " * 30, REASON),
    ):
        with subtests.test(text=text):
            assert warnings([finding(detail=detail, remediation=remediation)]) == [START + text]


def test_a_warning_is_not_cut_within_a_word() -> None:
    [text] = warnings([finding(detail="long " * 50, reason="privileged " * 30)])
    assert len(text) <= 256
    assert text.endswith("privileged…")


def test_a_policy_that_replicas_ignore_causes_a_warning_that_fits() -> None:
    assert not_followed("a", "a") == []
    [of_file] = not_followed("a", "")
    assert of_file == "this gpufence reads its policy from a file and ignores a"
    [longest] = not_followed("a" * 253, "b" * 253)
    assert len(longest) <= WARNING_LENGTH


def test_a_warning_is_truncated_to_the_api_server_limit() -> None:
    [text] = warnings([finding(detail="ü" * 300, reason="ü" * 300)])
    assert len(text) == 256
    assert text.endswith("…")


def test_a_warning_contains_no_character_that_the_api_server_rejects() -> None:
    rejected = "\n\r\t\0\x7f\x85\u2028"
    texts = warnings([finding(detail=f"one{character}two") for character in rejected])
    assert [text for text in texts if "one two" not in text or not text.isprintable()] == []
    assert len(texts) == len(rejected)


def test_all_warnings_together_stay_within_the_api_server_limit(subtests: pytest.Subtests) -> None:
    cure = "to see all, run `gpufence check` on the manifest"
    for count in (1, 15, 16, 17, 400):
        with subtests.test(count=count):
            texts = warnings([finding(detail=f"{number} " * 200) for number in range(count)])
            assert len(texts) == min(count, 16)
            assert sum(map(len, texts)) <= 4096
            assert count <= 16 or texts[-1] == f"gpufence found {count - 15} more; {cure}"


def decision(*findings: Finding, **fields: Any) -> Decision:
    return Decision({}, findings=findings, **fields)


def test_audit_annotations_contain_the_findings_of_each_rule(subtests: pytest.Subtests) -> None:
    actions: tuple[Action, ...] = ("enforce", "warn", "audit")
    for action in actions:
        with subtests.test(action=action):
            found = [finding(detail=text, action=action) for text in ("1 is not 2", "3 is not 4")]
            assert audit_annotations(decision(*found)) == {
                "unequal-device-limits": f"{action}: {found[0].message}; {found[1].message}"
            }


def test_audit_annotations_contain_exceptions_and_exemptions() -> None:
    excepted = finding()
    noted = decision(exemption="the policy exempts user root", excepted=(excepted,))
    assert audit_annotations(noted) == {
        "excepted": f"unequal-device-limits: {excepted.message}",
        "exempt": "the policy exempts user root",
    }


def test_audit_annotations_have_valid_keys_and_a_bounded_size() -> None:
    found = decision(finding(detail="long" * 5000), exemption="x" * 20_000)
    for key, text in audit_annotations(found).items():
        # k8s.io/apimachinery, IsQualifiedName, whose prefix is the webhook's name.
        assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", key)
        assert len(text) == 10 * 1024


def test_a_pod_is_told_of_a_user_only_if_the_patch_gives_it_one(subtests: pytest.Subtests) -> None:
    """Another mutation adds annotations, too."""
    spec = default_spec()
    spec["pools"][0]["requires"] = [{"doNotDisrupt": True, "action": "enforce"}]
    for context, count in (({}, 1), ({"runAsUser": 1000}, 0)):
        for metadata in ({}, {"annotations": {"team": "blue"}}):
            with subtests.test(metadata=metadata, context=context):
                obj = gpu_pod()
                obj["metadata"].pop("annotations", None)
                obj["metadata"] |= metadata
                obj["spec"]["securityContext"] = context
                operations = mutate(obj, policy_of(spec))
                assert any("do-not-disrupt" in f"{each.path}{each.value}" for each in operations)
                found = assigned_user(operations)
                assert len(found) == count
                assert all("runs this Pod as user 65532, because" in text for text in found)
