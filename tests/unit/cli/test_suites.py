"""``gpufence test``: suites for a team's own policy."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import junit_schema
from running import GPU_POD, PLAIN_POD, Run, assert_golden, write_policy
from webhook.tools.cli.report.output import FORMATS

Object = dict[str, Any]


def suite(*cases: Object, **more: Any) -> Object:
    return {
        "apiVersion": "gpufence.dev/v1beta1",
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


GOLDEN = Path(__file__).with_name("suites")


@pytest.mark.parametrize("name", FORMATS["suites"])
def test_the_report_of_suites_is_as_expected(gpufence: Run, tmp_path: Path, name: str) -> None:
    shutil.copytree(GOLDEN, tmp_path, dirs_exist_ok=True)
    end = (GOLDEN / "policy-end.yaml").read_text()
    write_policy(tmp_path, ("usernames: []", "usernames: [operator]"), end=end)
    done = gpufence("test", "--output", name)
    assert done.status == 2
    report = done.out
    if name == "text":
        # The list of all rules is left out.
        errors = re.sub("Accepted: device-requests, .*", "", done.err)
        report = f"{report}\nOn standard error:\n{errors}"
    if name == "junit":
        junit_schema.validate(report)
    assert_golden(GOLDEN / f"report.{name}", report)


def test_passed_cases_are_counted(gpufence: Run, tmp_path: Path) -> None:
    write(tmp_path, suite(case(GPU_POD, {"verdict": "mutated"}), ALLOWED))
    done = gpufence("test")
    assert (done.status, done.err) == (0, "")
    assert "passed  case 1  gpufence-test.yaml:4\n" in done.out
    assert "2 cases in 1 suite: 2 passed\n" in done.out


def test_suites_are_found_recursively_or_given_by_path(gpufence: Run, tmp_path: Path) -> None:
    for directory in ("a", "b", ".hidden"):
        (tmp_path / directory).mkdir()
    write(tmp_path / "a", suite(ALLOWED))
    write(tmp_path / "b", suite(ALLOWED), "web.gpufence-test.yml")
    write(tmp_path / "b", suite(WRONG), "other.yaml")
    write(tmp_path / ".hidden", suite(WRONG))
    assert "2 cases in 2 suites: 2 passed" in gpufence("test", ".").out
    assert "1 case in 1 suite: 1 failed" in gpufence("test", "b/other.yaml").out


def test_an_unreadable_suite_is_an_error_and_other_suites_run(
    gpufence: Run, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    write(tmp_path, suite(ALLOWED))
    os.mkfifo(tmp_path / "pipe.gpufence-test.yaml")  # in a directory, it has no writer
    for path, problem in {
        "nowhere.yaml": "does not exist. Check the path.",
        "x" * 300: "cannot be read (File name too long). Check the path.",
    }.items():
        with subtests.test(path=path):
            done = gpufence("test", path, ".")
            assert (done.status, done.err) == (2, f"Error: {path}: {problem}\n")
            assert "1 passed" in done.out


def test_a_directory_or_a_file_without_suites_is_an_error(gpufence: Run, tmp_path: Path) -> None:
    done = gpufence("test")
    assert done.status == 2
    names = "gpufence-test.yaml or *.gpufence-test.yaml"
    assert done.err == f"Error: .: no suites found. Name suite files {names}.\n"
    assert "nowhere: does not exist" in gpufence("test", "nowhere").err
    (tmp_path / "gpufence-test.yaml").write_text("")
    assert "gpufence-test.yaml: is empty." in gpufence("test").err


def test_a_suite_that_names_a_device_is_an_error(gpufence: Run, tmp_path: Path) -> None:
    by_path = {"manifest": "/dev/zero", "expect": {"verdict": "allowed"}}
    write(tmp_path, suite(by_path))
    write(tmp_path, suite(ALLOWED, policy="/dev/zero"), "other.gpufence-test.yaml")
    done = gpufence("test")
    assert "/dev/zero: is not a regular file. Name a file or a directory." in done.out
    assert done.err == "Error: /dev/zero: is larger than 4 MiB. Name a smaller file.\n"
