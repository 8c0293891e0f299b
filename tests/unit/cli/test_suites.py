"""``gpufence test``: suites for a team's own policy."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

import junit_schema
from paths import PROJECT
from policies.registry import RULES
from running import GPU_POD, NO_QUANTITY, PLAIN_POD, TRESPASSER, Run, run_command

SUITES = PROJECT / "docs" / "examples" / "suites"

Object = dict[str, Any]


def suite(*cases: Object, **more: Any) -> Object:
    return {
        "apiVersion": "gpufence.dev/v1alpha1",
        "kind": "FenceTest",
        **more,
        "cases": [{"name": f"case {number}", **case} for number, case in enumerate(cases, 1)],
    }


def case(manifest: str, expect: Object, **more: Any) -> Object:
    return {"manifest": yaml.safe_load(manifest), "expect": expect, **more}


def write(directory: Path, document: Object, name: str = "gpufence-test.yaml") -> None:
    (directory / name).write_text(yaml.safe_dump(document, sort_keys=False))


ALLOWED = case(PLAIN_POD, {"verdict": "allowed"})
WRONG = case(PLAIN_POD, {"verdict": "denied"})


def test_the_suites_of_the_documentation_pass_and_exercise_every_rule() -> None:
    done = run_command("test", "--output", "json", "--rules-coverage", SUITES)
    assert (done.status, done.err) == (0, "")
    assert done.report["summary"]["failed"] == 0
    exercised = {rule for case in done.report["cases"] for rule in case["exercisedRules"]}
    assert exercised == {rule.id for rule in RULES}


def test_passed_cases_are_counted_and_unexercised_rules_are_listed(
    gpufence: Run, tmp_path: Path
) -> None:
    write(tmp_path, suite(case(GPU_POD, {"verdict": "mutated"}), ALLOWED))
    done = gpufence("test")
    assert (done.status, done.err) == (0, "")
    assert "passed  case 1  gpufence-test.yaml:4\n" in done.out
    assert "2 cases in 1 suite: 2 passed\n" in done.out
    [unexercised] = re.findall(r"^No case exercises (.*)\.$", done.out, re.MULTILINE)
    added = {"device-requests", "pool-toleration", "pool-node-affinity"}
    added.add("restricted-security-context")
    assert unexercised.split(", ") == [rule.id for rule in RULES if rule.id not in added]
    assert gpufence("test", "--rules-coverage").status == 1


def test_a_rule_that_is_off_is_not_listed_as_unexercised(gpufence: Run, tmp_path: Path) -> None:
    policy = gpufence("policy", "show").out.replace("device-leak: enforce", "device-leak: off")
    (tmp_path / "policy.yaml").write_text(policy)
    write(tmp_path, suite(ALLOWED, policy="policy.yaml"))
    assert "device-leak" not in gpufence("test").out
    assert "pool-trespass" in gpufence("test").out


def test_an_unexpected_verdict_fails_and_shows_the_findings(gpufence: Run, tmp_path: Path) -> None:
    write(tmp_path, suite(case(TRESPASSER, {"verdict": "allowed"})))
    done = gpufence("test")
    assert done.status == 1
    assert "failed  case 1" in done.out
    assert "expected verdict allowed, but got denied." in done.out
    assert (
        "enforce pool-trespass: spec.template.spec.tolerations[0]: the toleration lets" in done.out
    )
    assert "1 case in 1 suite: 1 failed" in done.out


@pytest.mark.parametrize(
    ("rules", "status"),
    [
        (["pool-trespass"], 0),
        ([], 1),
        (["device-leak"], 1),
        (["device-leak", "pool-trespass"], 1),
    ],
    ids=["same", "none", "different", "additional"],
)
def test_a_case_passes_only_if_the_rules_match_exactly(
    gpufence: Run, tmp_path: Path, rules: list[str], status: int
) -> None:
    write(tmp_path, suite(case(TRESPASSER, {"rules": rules})))
    done = gpufence("test")
    assert done.status == status
    if status:
        listed = ", ".join(rules) or "no rule"
        assert f"expected findings of {listed}, but got findings of pool-trespass." in done.out


@pytest.mark.parametrize(
    ("path", "value", "failure"),
    [
        ("spec.tolerations[0].key", "nvidia.com/gpu", None),
        ("/spec/tolerations/0/key", "nvidia.com/gpu", None),
        ("spec.containers[0].resources.limits[nvidia.com/gpu]", 1, None),
        ("/spec/containers/0/resources/requests/nvidia.com~1gpu", 1, None),
        ("spec.hostNetwork", None, None),
        ("spec.tolerations[0].key", "gpu", 'expected "gpu" at PATH, but got "nvidia.com/gpu"'),
        ("spec.tolerations[7].key", "gpu", 'expected "gpu" at PATH, but got nothing'),
        ("spec.tolerations", None, 'expected nothing at PATH, but got [{"key": "nvidia'),
        ("spec.tolerations", [{"key": "other"}], "PATH is not as expected"),
    ],
)
def test_expected_values_are_compared_with_the_mutated_object(
    gpufence: Run, tmp_path: Path, path: str, value: Any, failure: str | None
) -> None:
    write(tmp_path, suite(case(GPU_POD, {"values": {path: value}})))
    done = gpufence("test")
    assert done.status == (failure is not None)
    if failure is not None:
        assert failure.replace("PATH", path) in done.out


def test_an_unexpected_value_is_shown_as_a_diff(gpufence: Run, tmp_path: Path) -> None:
    wrong = {"runAsNonRoot": True, "runAsUser": 1000}
    write(tmp_path, suite(case(GPU_POD, {"values": {"spec.securityContext": wrong}})))
    lines = [line.strip() for line in gpufence("test").out.splitlines()]
    assert "-runAsUser: 1000" in lines
    assert "+runAsUser: 65532" in lines
    assert "+seccompProfile:" in lines


def test_username_namespace_and_operation_of_a_case_apply(gpufence: Run, tmp_path: Path) -> None:
    policy = gpufence("policy", "show").out.replace("usernames: []", "usernames: [operator]")
    (tmp_path / "policy.yaml").write_text(policy)
    old = yaml.safe_load(TRESPASSER)
    denied, allowed = {"verdict": "denied"}, {"verdict": "allowed"}
    write(
        tmp_path,
        suite(
            case(TRESPASSER, denied),
            case(TRESPASSER, allowed, username="operator"),
            case(TRESPASSER, allowed, namespace="kube-system"),
            case(TRESPASSER, allowed, operation="UPDATE", old=old),
            policy="policy.yaml",
        ),
    )
    done = gpufence("test")
    assert done.status == 0, done.out


def test_cluster_facts_of_a_case_apply(gpufence: Run, tmp_path: Path) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "cpu-1"}}
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump(node))
    bound = GPU_POD.replace("spec:\n", "spec:\n  nodeName: cpu-1\n")
    rules = {"rules": ["unschedulable-gpu-pod"]}
    write(
        tmp_path,
        suite(
            case(bound, {"rules": []}),
            case(bound, rules, cluster=["nodes.yaml"]),
            case(bound, rules, cluster=[node]),
        ),
    )
    done = gpufence("test")
    assert done.status == 0, done.out


def test_the_today_field_of_a_case_sets_when_exceptions_expire(
    gpufence: Run, tmp_path: Path
) -> None:
    policy = yaml.safe_load(gpufence("policy", "show").out)
    entry = {"namespaces": ["default"], "reason": "for now", "expires": "2020-01-01"}
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(policy | {"exceptions": [entry]}))
    excepted = {"verdict": "allowed", "excepted": ["pool-trespass"]}
    write(
        tmp_path,
        suite(
            case(TRESPASSER, excepted),
            case(TRESPASSER, excepted, today="2019-12-31"),
            case(TRESPASSER, {"verdict": "denied", "excepted": []}, today="2020-01-01"),
            case(TRESPASSER, {"excepted": ["device-leak"]}),
            policy="policy.yaml",
        ),
    )
    done = gpufence("test")
    assert "expected exceptions for device-leak, but got exceptions for pool-trespass" in done.out
    assert "4 cases in 1 suite: 3 passed, 1 failed" in done.out


def test_a_manifest_with_several_objects_requires_the_object_field(
    gpufence: Run, tmp_path: Path
) -> None:
    (tmp_path / "all.yaml").write_text(f"{GPU_POD}---\n{TRESPASSER}")
    expect = {"verdict": "denied"}
    write(
        tmp_path,
        suite(
            {"manifest": "all.yaml", "expect": expect},
            {"manifest": "all.yaml", "expect": expect, "object": "Deployment/web"},
            {"manifest": "all.yaml", "expect": expect, "object": "Job/web"},
        ),
    )
    done = gpufence("test")
    assert done.status == 2
    assert "the manifest has Pod/train, Deployment/web; select one with object." in done.out
    assert "Job/web is not in the manifest, which has Pod/train, Deployment/web." in done.out
    assert "3 cases in 1 suite: 1 passed, 2 error" in done.out


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        ("missing.yaml", "missing.yaml: does not exist. Check the path."),
        (yaml.safe_load(NO_QUANTITY), "gpufence-test.yaml:"),
    ],
    ids=["a file", "an object"],
)
def test_an_invalid_manifest_is_an_error_and_other_cases_run(
    gpufence: Run, tmp_path: Path, manifest: Any, problem: str
) -> None:
    write(tmp_path, suite({"manifest": manifest, "expect": {"verdict": "allowed"}}, ALLOWED))
    done = gpufence("test")
    assert done.status == 2
    assert problem in done.out
    assert "passed  case 2" in done.out


def test_suites_are_found_recursively_or_given_by_path(gpufence: Run, tmp_path: Path) -> None:
    for directory in ("a", "b", ".hidden"):
        (tmp_path / directory).mkdir()
    write(tmp_path / "a", suite(ALLOWED))
    write(tmp_path / "b", suite(ALLOWED), "web.gpufence-test.yml")
    write(tmp_path / "b", suite(WRONG), "other.yaml")
    write(tmp_path / ".hidden", suite(WRONG))
    assert "2 cases in 2 suites: 2 passed" in gpufence("test", ".").out
    assert "1 case in 1 suite: 1 failed" in gpufence("test", "b/other.yaml").out


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (suite(), "cases: is empty; add at least one entry"),
        (
            suite(ALLOWED, polcy="x"),
            "gpufence-test.yaml:3: polcy: unknown field; did you mean policy?",
        ),
        (
            suite({"manifest": "a.yaml", "expect": {}}),
            "cases[0].expect: is empty; set at least one of verdict, rules, excepted and values",
        ),
        (
            suite({"manifest": "a.yaml", "expect": {"verdict": "refused"}}),
            "cases[0].expect.verdict: is 'refused', but must be 'allowed', 'mutated', ",
        ),
        (
            suite({"manifest": "a.yaml", "expect": {"rules": ["pool-tresspass"]}}),
            "cases[0].expect.rules[0]: unknown rule; did you mean pool-trespass? Accepted: ",
        ),
        (
            suite({"manifest": 3, "expect": {"rules": []}}),
            "cases[0].manifest: is 3; write the path",
        ),
        (
            suite({"manifest": "a.yaml", "operation": "UPDATE", "expect": {"rules": []}}),
            "sets only one of operation: UPDATE and old",
        ),
        (suite(ALLOWED, ALLOWED | {"name": "case 1"}), "has two cases named 'case 1'"),
        (suite(ALLOWED) | {"kind": "Test"}, "kind: is 'Test', but must be 'FenceTest'"),
        (suite(ALLOWED, today="soon"), "today: is not a date; use the format YYYY-MM-DD"),
        (suite(ALLOWED, policy="none.yaml"), "none.yaml: does not exist"),
        ([], "the suite: must be a mapping with kind: FenceTest, but is []."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_suite_with_an_invalid_field_is_an_error_and_other_suites_run(
    gpufence: Run, tmp_path: Path, document: Object, problem: str
) -> None:
    write(tmp_path, document)
    write(tmp_path, suite(ALLOWED), "good.gpufence-test.yaml")
    done = gpufence("test")
    assert done.status == 2
    assert problem in done.err
    assert "1 case in 1 suite: 1 passed" in done.out


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("nowhere.yaml", "does not exist. Check the path."),
        ("x" * 300, "cannot be read (File name too long). Check the path."),
    ],
)
def test_an_unreadable_suite_is_an_error_and_other_suites_run(
    gpufence: Run, tmp_path: Path, path: str, problem: str
) -> None:
    write(tmp_path, suite(case(PLAIN_POD, {"verdict": "allowed"})))
    os.mkfifo(tmp_path / "pipe.gpufence-test.yaml")  # in a directory, it has no writer
    done = gpufence("test", path, ".")
    assert (done.status, done.err) == (2, f"Error: {path}: {problem}\n")
    assert "1 passed" in done.out


def test_a_suite_that_names_a_device_is_an_error(gpufence: Run, tmp_path: Path) -> None:
    by_path = {"manifest": "/dev/zero", "expect": {"verdict": "allowed"}}
    write(tmp_path, suite(by_path, ALLOWED))
    write(tmp_path, suite(ALLOWED, policy="/dev/zero"), "other.gpufence-test.yaml")
    done = gpufence("test")
    assert done.status == 2
    assert "/dev/zero: is not a regular file. Name a file, a directory or a chart." in done.out
    assert "Error: /dev/zero: is larger than 4 MiB. Name a smaller file.\n" in done.err
    assert "2 cases in 1 suite: 1 passed, 1 error" in done.out


def test_a_directory_or_a_file_without_suites_is_an_error(gpufence: Run, tmp_path: Path) -> None:
    done = gpufence("test")
    assert done.status == 2
    names = "gpufence-test.yaml or *.gpufence-test.yaml"
    assert done.err == f"Error: .: no suites found. Name suite files {names}.\n"
    assert "nowhere: does not exist" in gpufence("test", "nowhere").err
    (tmp_path / "gpufence-test.yaml").write_text("")
    assert "gpufence-test.yaml: is empty." in gpufence("test").err


def test_the_json_report_has_the_summary_and_the_result_of_each_case(
    gpufence: Run, tmp_path: Path
) -> None:
    broken = {"manifest": "missing.yaml", "expect": {"verdict": "allowed"}}
    write(tmp_path, suite(ALLOWED, WRONG, broken))
    done = gpufence("test", "--output", "json")
    assert done.status == 2
    report = json.loads(done.out)
    summary = report["summary"]
    assert [summary[key] for key in ("cases", "passed", "failed", "errors")] == [3, 1, 1, 1]
    assert [case["result"] for case in report["cases"]] == ["passed", "failed", "error"]
    assert report["cases"][1]["failures"] == ["expected verdict denied, but got allowed"]
    assert "missing.yaml: does not exist" in report["cases"][2]["error"]


def test_the_junit_report_has_a_test_case_for_each_case(gpufence: Run, tmp_path: Path) -> None:
    broken = {"manifest": "missing.yaml", "expect": {"verdict": "allowed"}}
    other = case(GPU_POD, {"values": {"spec.securityContext": {"runAsUser": 0}}})
    write(tmp_path, suite(ALLOWED, WRONG, broken, other))
    done = gpufence("test", "--output", "junit")
    junit_schema.validate(done.out)
    root = ET.fromstring(done.out)  # noqa: S314 - the tests' own output
    [found] = root.findall("testsuite")
    assert found.attrib == {
        "name": "gpufence-test.yaml",
        "tests": "4",
        "failures": "2",
        "errors": "1",
        "skipped": "0",
    }
    assert [[child.tag for child in each] for each in found.findall("testcase")] == [
        [],
        ["failure"],
        ["error"],
        ["failure"],
    ]
    text = found.findall("testcase")[3].findtext("failure") or ""
    assert "-runAsUser: 0\n+runAsUser: 65532\n" in text
