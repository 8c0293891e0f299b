"""``--output``: places that a report must not go to."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from controlplane.gpufence import COMMAND
from running import PLAIN_POD, TRESPASSER, Run


@pytest.mark.parametrize(
    ("outputs", "problem"),
    [
        (["sarf"], "'sarf' is not a format of this report. Did you mean sarif?"),
        (["sarif="], "'sarif=' names no file. Write sarif=FILE."),
        (["text", "json"], "text and json both go to standard output. Write text=FILE."),
        (["json", "sarif=-"], "json and sarif both go to standard output. Write json=FILE."),
        (["json=a", "sarif=a"], "json and sarif both go to a. Name two files."),
        (["json=a", "sarif=./a"], "json and sarif both go to a. Name two files."),
        (
            ["json=a", "sarif=link"],
            "json and sarif both go to a. Name two files.",
        ),
        (["text", "json=/dev/stdout"], "text and json both go to standard output. Write"),
    ],
)
def test_invalid_or_conflicting_outputs_are_rejected(
    gpufence: Run, tmp_path: Path, outputs: list[str], problem: str
) -> None:
    (tmp_path / "link").symlink_to("a")
    args = [arg for output in outputs for arg in ("--output", output)]
    done = gpufence("check", *args, "-", stdin=PLAIN_POD)
    assert done.status == 2
    assert problem in done.err


@pytest.mark.parametrize(
    ("args", "over"),
    [
        (["sarif=web.yaml", "web.yaml"], "web.yaml"),
        (["sarif=./web.yaml", "."], "web.yaml"),
        (["sarif=link", "*.yaml"], "web.yaml"),
        (["sarif=twin", "web.yaml"], "web.yaml"),
        (["text=policy.yml", "--policy", "policy.yml", "web.yaml"], "policy.yml"),
        (["text=nodes.json", "--nodes", "nodes.json", "web.yaml"], "nodes.json"),
    ],
)
def test_a_report_that_would_overwrite_an_input_is_rejected(
    gpufence: Run, tmp_path: Path, args: list[str], over: str
) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu"}}
    texts = {
        "web.yaml": TRESPASSER,
        "policy.yml": gpufence("policy", "show").out,
        "nodes.json": json.dumps(node),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "link").symlink_to("web.yaml")
    (tmp_path / "twin").hardlink_to(tmp_path / "web.yaml")
    before = sorted(tmp_path.iterdir())
    done = gpufence("check", "-o", "json=other.json", "-o", *args)
    assert (done.status, done.out) == (2, "")
    problem = f"--output {args[0]} overwrites the input {over}. Name another file"
    assert problem in " ".join(done.err.split())
    assert sorted(tmp_path.iterdir()) == before
    assert {name: (tmp_path / name).read_text() for name in texts} == texts


def test_a_previous_report_in_the_checked_directory_can_be_excluded(
    gpufence: Run, tmp_path: Path
) -> None:
    (tmp_path / "web.yaml").write_text(TRESPASSER)
    args = ("check", "-o", "json=report.json", ".")
    assert gpufence(*args).status == 1
    again = gpufence(*args)
    assert again.status == 2
    assert "or --exclude the input" in " ".join(again.err.split())
    assert gpufence(*args, "--exclude", "report.json").status == 1


def test_a_report_that_would_overwrite_standard_input_is_rejected(tmp_path: Path) -> None:
    manifest = tmp_path / "web.yaml"
    manifest.write_text(TRESPASSER)
    with manifest.open() as stdin:
        done = subprocess.run(
            [COMMAND, "check", "-o", f"json={manifest}", "-"],
            stdin=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert "<stdin>" in done.stderr
    assert manifest.read_text() == TRESPASSER


def test_a_report_and_exceptions_in_the_same_file_are_rejected(
    gpufence: Run, tmp_path: Path
) -> None:
    args = ["--output", "json=./a.yaml", "--generate-exceptions", "a.yaml"]
    done = gpufence("check", *args, "-", stdin=TRESPASSER)
    assert done.status == 2
    assert "both go to a.yaml. Name two files." in done.err
    assert not list(tmp_path.iterdir())


def test_an_audit_report_that_would_overwrite_an_input_is_rejected(
    gpufence: Run, tmp_path: Path
) -> None:
    for name, option in (("policy.yaml", "--policy"), ("config", "--kubeconfig")):
        (tmp_path / name).write_text("kept")
        done = gpufence("audit", "-o", f"json={name}", option, name)
        assert (done.status, (tmp_path / name).read_text()) == (2, "kept")
        assert f"overwrites the input {name}" in " ".join(done.err.split())
