"""The pre-commit hooks: what pre-commit would run, run on files as pre-commit names them.

pre-commit itself is no dependency of the project. Its ``validate-manifest`` and ``try-repo`` were
run by hand (4.7.0, 2026-11-21).
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from paths import PROJECT
from running import CONFIG_MAP, PLAIN_POD, TRESPASSER, Run

HOOKS: dict[str, dict[str, Any]] = {
    hook["id"]: hook for hook in yaml.safe_load((PROJECT / ".pre-commit-hooks.yaml").read_text())
}


def test_each_hook_has_the_fields_that_pre_commit_requires(subtests: pytest.Subtests) -> None:
    for name, hook in HOOKS.items():
        with subtests.test(name):
            assert {"id", "name", "description", "entry", "language"} <= set(hook)
            assert hook["language"] == "python"
            assert shlex.split(hook["entry"])[0] == "gpufence"


def test_the_check_hook_checks_the_given_files(gpufence: Run, tmp_path: Path) -> None:
    command = shlex.split(HOOKS["gpufence-check"]["entry"])[1:]
    for name, text in (("web.yaml", PLAIN_POD), ("config.yaml", CONFIG_MAP)):
        (tmp_path / name).write_text(text)
    (tmp_path / "values.yaml").write_text("replicas: 3\n")
    assert gpufence(*command, "web.yaml", "config.yaml", "values.yaml").status == 0
    (tmp_path / "bad.yaml").write_text(TRESPASSER)
    done = gpufence(*command, "web.yaml", "bad.yaml")
    assert done.status == 1
    assert "pool-trespass  bad.yaml:9" in done.out


def test_the_test_hook_finds_suites_in_the_repository(gpufence: Run, tmp_path: Path) -> None:
    hook = HOOKS["gpufence-test"]
    assert hook["pass_filenames"] is False
    (tmp_path / "tests").mkdir()
    pod = yaml.safe_load(PLAIN_POD)
    case = {"name": "a web server", "manifest": pod, "expect": {"verdict": "allowed"}}
    suite = {"apiVersion": "gpufence.dev/v1beta1", "kind": "FenceTest", "cases": [case]}
    (tmp_path / "tests" / "gpufence-test.yaml").write_text(yaml.safe_dump(suite))
    done = gpufence(*shlex.split(hook["entry"])[1:])
    assert (done.status, done.err) == (0, "")
