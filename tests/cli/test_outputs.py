"""`gpufence check --output`: several reports of one run, and those that have no place to go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.running import FAULTS, GPU_POD, NO_QUANTITY, PLAIN_POD, TRESPASSER, Run
from webhook.cli.report.formats import FORMATS


def test_one_run_writes_every_format(gpufence: Run, tmp_path: Path) -> None:
    outputs = [arg for name in FORMATS for arg in ("--output", f"{name}={name}.out")]
    done = gpufence("check", *outputs, "-", stdin=FAULTS)
    assert (done.status, done.out, done.err) == (1, "", "")
    for name in FORMATS:
        text = (tmp_path / f"{name}.out").read_text()
        assert "device-leak" in text, name
        assert "\x1b[" not in text, name


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_has_what_standard_output_would_have(
    gpufence: Run, tmp_path: Path, name: str
) -> None:
    shown = gpufence("check", "-o", name, "-", stdin=FAULTS).out
    assert gpufence("check", "-o", f"{name}=-", "-", stdin=FAULTS).out == shown
    gpufence("check", "-o", f"{name}=report", "-", stdin=FAULTS)
    assert (tmp_path / "report").read_text() == shown


def test_one_report_may_go_to_standard_output_beside_those_in_files(
    gpufence: Run, tmp_path: Path
) -> None:
    done = gpufence("check", "-o", "text", "-o", "json=report.json", "-", stdin=TRESPASSER)
    assert done.out.startswith("denied")
    assert json.loads((tmp_path / "report.json").read_text())["summary"]["denied"] == 1


def test_what_is_broken_is_on_standard_error_unless_the_text_says_it(gpufence: Run) -> None:
    assert gpufence("check", "-", stdin=NO_QUANTITY).err == ""
    for output in ("github", "text=report.txt"):
        done = gpufence("check", "-o", output, "-", stdin=NO_QUANTITY)
        assert done.err.startswith("Error: <stdin>:10:11: document 1: ")


@pytest.mark.parametrize(
    ("outputs", "problem"),
    [
        (["sarf"], "'sarf' is no format; the formats are text, json, sarif, "),
        (["sarif="], "'sarif=' names no file; write sarif=FILE"),
        (["text", "json"], "text and json would both go to standard output; write text=FILE"),
        (["json", "sarif=-"], "json and sarif would both go to standard output; write json=FILE"),
        (["json=a", "sarif=a"], "json and sarif would both go to a; write json=FILE"),
    ],
)
def test_outputs_that_make_no_sense_are_refused(
    gpufence: Run, outputs: list[str], problem: str
) -> None:
    args = [arg for output in outputs for arg in ("--output", output)]
    done = gpufence("check", *args, "-", stdin=PLAIN_POD)
    assert done.status == 2
    assert problem in done.err


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("out/report.sarif", "out/report.sarif: there is no folder out. Create it first."),
        ("folder", "folder: is a folder. Name a file in it."),
        (
            f"{'x' * 300}",
            f"{'x' * 300}: cannot be written (File name too long). Name a file that can.",
        ),
    ],
)
def test_a_file_that_cannot_be_written_is_named_before_anything_is_checked(
    gpufence: Run, tmp_path: Path, path: str, problem: str
) -> None:
    (tmp_path / "folder").mkdir()
    done = gpufence("check", "-o", "text", "-o", f"sarif={path}", "-", stdin=TRESPASSER)
    assert (done.status, done.out, done.err) == (2, "", f"Error: {problem}\n")


def test_exceptions_on_standard_output_leave_the_reports_in_files(
    gpufence: Run, tmp_path: Path
) -> None:
    args = ["--output", "sarif=report.sarif", "--generate-exceptions", "-"]
    done = gpufence("check", *args, "-", stdin=TRESPASSER)
    assert done.status == 0
    assert "exceptions:" in done.out
    assert "pool-trespass" in (tmp_path / "report.sarif").read_text()


def test_quiet_leaves_out_what_is_in_order(gpufence: Run) -> None:
    text = "---\n".join([GPU_POD, TRESPASSER, PLAIN_POD, NO_QUANTITY])
    lines = gpufence("check", "--quiet", "-", stdin=text).out.splitlines()
    assert [line.split()[0] for line in lines if line and not line.startswith(" ")] == [
        "denied",
        "invalid",
    ]
    assert gpufence("check", "-q", "-", stdin=GPU_POD).out == ""


@pytest.mark.parametrize(
    ("args", "status"), [([], 0), (["--fail-on", "enforce"], 0), (["--fail-on", "warn"], 1)]
)
def test_warnings_count_where_they_are_to(
    gpufence: Run, tmp_path: Path, args: list[str], status: int
) -> None:
    policy = gpufence("policy", "show").out
    (tmp_path / "policy.yaml").write_text(policy.replace("trespass: enforce", "trespass: warn"))
    done = gpufence("check", "--policy", "policy.yaml", *args, "-", stdin=TRESPASSER)
    assert done.status == status
    assert "1 warning" in done.out


def test_only_the_findings_of_the_rules_that_are_named_count(gpufence: Run) -> None:
    done = gpufence("check", "-o", "json", "--rules", "device-leak", "-", stdin=FAULTS)
    assert (done.status, done.verdicts) == (1, ["allowed", "denied"])
    both = ["--rules", "device-leak, pool-trespass", "--rules", "unschedulable-gpu-pod"]
    assert gpufence("check", "-o", "json", *both, "-", stdin=FAULTS).verdicts == ["denied"] * 2
    done = gpufence("check", "--rules", "pool-not-allowed", "-", stdin=FAULTS)
    assert (done.status, "pool-trespass" in done.out) == (0, False)


def test_what_is_broken_counts_whatever_the_rules(gpufence: Run) -> None:
    assert gpufence("check", "--rules", "device-leak", "-", stdin=NO_QUANTITY).status == 2


@pytest.mark.parametrize(
    ("rules", "near"),
    [
        ("device-leek", "is it device-leak or "),
        ("pool-trespass,Trespass", "is it pool-trespass?"),
        ("privileged", "is it privileged-near-devices?"),
    ],
)
def test_a_rule_that_is_none_is_answered_with_those_near_it(
    gpufence: Run, rules: str, near: str
) -> None:
    done = gpufence("check", "--rules", rules, "-", stdin=PLAIN_POD)
    assert done.status == 2
    assert near in done.err.replace("\n", " ")
