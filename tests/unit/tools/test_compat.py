"""`make compat` accepts releases of Kubernetes, and CI runs it on those that the pages name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

import compat
from controlplane import binaries
from controlplane.gobuild import GoModule
from paths import PROJECT


def test_an_invalid_release_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    invalid: tuple[list[str], ...] = ([], ["1.34.2"], ["v1.34"], ["latest"])
    problem = "is not a release of Kubernetes: use v1.MINOR.PATCH, or a pre-release"
    found = [(compat.main(given), problem in capsys.readouterr().err) for given in invalid]
    assert found == [(1, True)] * len(invalid)


def test_what_is_selected_runs_and_otherwise_every_end_to_end_test(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append(command[3:])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(GoModule, "binaries", lambda *_: {"kube-apiserver": tmp_path})
    monkeypatch.setattr(compat, "module", lambda _: binaries.module())
    monkeypatch.setattr(binaries, "version_of", str)
    monkeypatch.setattr(subprocess, "run", run)
    compat.main(["v1.34.10", "-q"])
    compat.main(["v1.34.10", "-q", "tests/e2e/test_mode.py"])
    assert ran == [["-q", "tests/e2e"], ["-q", "tests/e2e/test_mode.py"]]


def test_the_compatibility_page_names_the_versions_that_ci_tests() -> None:
    workflow = yaml.safe_load((PROJECT / ".github/workflows/ci.yaml").read_text())
    versions = workflow["jobs"]["compat"]["strategy"]["matrix"]["kubernetes"]
    page = (PROJECT / "docs/reference/compatibility.md").read_text()
    rows = re.findall(r"(?m)^\| (v1\.\d+\.\d+) \|", page)
    assert sorted(rows) == sorted([*versions, binaries.VERSION])


def test_versions_are_compared_by_number() -> None:
    assert binaries.is_older("v1.30.14", "v1.34")
    assert binaries.is_older("v1.9.0", "v1.30")
    assert not binaries.is_older("v1.34.0", "v1.34")
    assert not binaries.is_older("v1.36.3", "v1.34")
