"""`make new-rule` adds a working rule, which fails nothing but the test for TODOs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from new_rule import NewRuleError, add
from paths import PROJECT

NAME = "rule-of-a-test"
COPIED = (
    "deploy",
    "docs/examples",
    "docs/get-started/denied.md",
    "policies",
    "pyproject.toml",
    "requirements",
    "tests/cases",
    "tests/conftest.py",
    "tests/support",
    "tests/tools",
    "tests/unit/cli/report/test_sarif.py",
    "tests/unit/policies",
    "webhook",
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the rules, their tests and the generated files."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        source, target = PROJECT / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=ignored)
        else:
            shutil.copy(source, target)
    return tmp_path


def run(project: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a Python module in a copy of the project, with the packages of the copy."""
    path = [project, *(project / "tests" / name for name in ("", "support", "tools"))]
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=project,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow("copies the project, and runs its tests of the new rule")
def test_a_new_rule_works_and_leaves_only_todos(project: Path) -> None:
    added = run(project, "new_rule", NAME)
    assert added.returncode == 0, added.stderr
    findings = project / f"tests/cases/{NAME}/fail/a-wrong-pod.expected.yaml"
    assert f"rule: {NAME}" in findings.read_text()
    row = f"| [`{NAME}`](../rules/{NAME}.md) | TODO"
    assert row in (project / "docs/get-started/denied.md").read_text()
    definition = project / "deploy/helm/gpufence/crds/fencepolicies.yaml"
    assert f"{NAME}:" in definition.read_text()
    tests = [f"tests/unit/policies/test_{name}.py" for name in ("registry", "cases")]
    of_rule = ("-k", f"{NAME} or has_a_todo or sarif")
    options = ("-q", "-p", "no:cacheprovider", "-m", "not built", *of_rule)
    tested = run(project, "pytest", *options, *tests, "tests/unit/cli/report/test_sarif.py")
    failed = re.findall(r"(?m)^FAILED \S+::(\w+)", tested.stdout)
    assert failed == ["test_no_rule_has_a_todo"], tested.stdout
    with pytest.raises(NewRuleError, match=f"the rule {NAME} exists"):
        add(project, NAME)


def test_an_invalid_name_is_rejected(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for name in ("", "Not-A-Name", "../elsewhere", "trailing-"):
        with subtests.test(name=name), pytest.raises(NewRuleError, match="is not a rule name"):
            add(tmp_path, name)
