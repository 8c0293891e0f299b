"""`make new-rule` begins a rule that the tests of all rules take."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from new_rule import NewRuleError, begin
from paths import PROJECT, TESTS

NAME = "too-many-sidecars"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of as much of the project as rules and their tests are."""
    for name in (
        "policies",
        "tests/unit/policies",
        "tests/cases",
        "tests/support",
        "docs/examples",
    ):
        shutil.copytree(
            PROJECT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("pyproject.toml", "tests/conftest.py"):
        shutil.copy(PROJECT / name, tmp_path / name)
    return tmp_path


def test_a_new_rule_meets_what_is_asked_of_every_rule(project: Path) -> None:
    begin(project, NAME)
    path = [str(project), *(str(TESTS / name) for name in ("", "support", "tools"))]
    tests = ["tests/unit/policies/test_rules.py", "tests/unit/policies/test_cases.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, "-k", NAME],
        cwd=project,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path), "GPUFENCE_GOLDEN": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert (project / f"tests/cases/{NAME}/fail/a-pod-that-is-wrong.expected.yaml").is_file()
    assert f"  {NAME}: warn\n" in (project / "policies" / "document" / "default.yaml").read_text()


def test_no_rule_is_only_begun() -> None:
    begun = [
        file.name
        for file in (PROJECT / "policies" / "rules").glob("*.py")
        if "TODO" in file.read_text()
    ]
    assert begun == []


def test_a_rule_is_not_begun_twice(project: Path) -> None:
    begin(project, NAME)
    with pytest.raises(NewRuleError, match="already"):
        begin(project, NAME)


@pytest.mark.parametrize("name", ["", "single", "Not-A-Name", "../elsewhere"])
def test_what_is_no_name_is_refused(project: Path, name: str) -> None:
    with pytest.raises(NewRuleError, match="no name for a rule"):
        begin(project, name)
