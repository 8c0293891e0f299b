"""The GitHub Action: its steps are run by bash as a runner does, with inputs good and hostile."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from paths import PROJECT
from policies.shipped import default_policy_text
from running import GPU_POD, PLAIN_POD, TRESPASSER

ACTION: dict[str, Any] = yaml.safe_load((PROJECT / "action.yml").read_text())
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
SCRIPTS = [step for step in STEPS if "run" in step]
[CHECK] = [step for step in STEPS if step.get("id") == "check"]
[INSTALL] = [step for step in STEPS if step["name"] == "Install gpufence"]
EXPRESSION = re.compile(r"\$\{\{ *inputs\.([a-z-]+) *\}\}")


class Ran(NamedTuple):
    status: int
    out: str
    err: str
    outputs: dict[str, str]
    summary: str


class Runner:
    """A directory with a checkout and what a runner provides, with a command as if installed."""

    def __init__(self, directory: Path, command: Path) -> None:
        self.checkout = directory / "checkout"
        self._temp = directory / "temp"
        self.checkout.mkdir()
        self._temp.mkdir()
        (self._temp / "gpufence").symlink_to(command.parents[1])

    def check(self, **inputs: str) -> Ran:
        """Run the step as ``shell: bash`` means it; inputs are named with underscores."""
        given = {name: value.get("default", "") for name, value in ACTION["inputs"].items()}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        own = {
            key: EXPRESSION.sub(lambda match: given[match[1]], value)
            for key, value in CHECK["env"].items()
        }
        files = {
            name: self._temp / name.lower() for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")
        }
        for file in files.values():
            file.write_text("")
        script = self._temp / "script.sh"
        script.write_text(CHECK["run"])
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", script],
            cwd=self.checkout,
            env={
                "PATH": os.environ["PATH"],
                "RUNNER_TEMP": str(self._temp),
                **{name: str(file) for name, file in files.items()},
                **own,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        outputs = dict(
            line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines()
        )
        summary = files["GITHUB_STEP_SUMMARY"].read_text()
        return Ran(done.returncode, done.stdout, done.stderr, outputs, summary)


@pytest.fixture
def runner(tmp_path: Path, quick_command: Path) -> Runner:
    return Runner(tmp_path, quick_command)


def test_no_script_contains_an_expression() -> None:
    for step in SCRIPTS:
        assert "${{" not in step["run"], step["name"]
        assert step["shell"] == "bash"


def test_every_input_is_used_by_a_step_and_has_a_description() -> None:
    used = {
        name
        for step in SCRIPTS
        for value in step["env"].values()
        for name in EXPRESSION.findall(value)
    }
    assert used == set(ACTION["inputs"])
    assert all(value["description"].endswith(".") for value in ACTION["inputs"].values())


def test_the_action_installs_pinned_files_only() -> None:
    files = re.findall(r"--require-hashes -r \"\$ACTION/([\w./-]+)", INSTALL["run"])
    assert len(files) == 2
    assert INSTALL["run"].count('"${pip[@]}"') == len(files) + 1
    assert '--no-build-isolation --no-deps "$ACTION"' in INSTALL["run"]
    for file in files:
        assert "--hash=sha256:" in (PROJECT / file).read_text()


def test_installation_imports_no_module_from_the_checkout(tmp_path: Path) -> None:
    """`python -m` finds modules in the working directory first: in the checkout of a stranger."""
    checkout = tmp_path / "checkout"
    for module in ("venv.py", "pip/__init__.py", "pip/__main__.py", "ensurepip.py", "encodings.py"):
        path = checkout / module
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"open({str(tmp_path / 'PWNED')!r}, 'w')")
    # The pip of an environment takes ten seconds to install, and its absence shows that it is run.
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@" --without-pip\n')
    python.chmod(0o755)
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", INSTALL["run"]],
        cwd=checkout,
        env={
            "PATH": os.environ["PATH"],
            "RUNNER_TEMP": str(tmp_path),
            "PYTHON": str(python),
            "ACTION": str(tmp_path / "missing"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named pip" in done.stderr
    assert not (tmp_path / "PWNED").exists()


def test_a_finding_fails_the_step_and_annotates_its_line(runner: Runner) -> None:
    (runner.checkout / "web.yaml").write_text(TRESPASSER)
    done = runner.check(sarif="report.sarif")
    assert (done.status, done.outputs) == (1, {"status": "1", "sarif": "report.sarif"})
    assert re.search(r"^::error file=web\.yaml,line=9,", done.out, re.MULTILINE)
    heading, blank, *lines = done.summary.splitlines()
    assert (heading, blank) == ("### gpufence", "")
    assert all(line.startswith("    ") for line in lines)
    assert "pool-trespass" in done.summary
    report = json.loads((runner.checkout / "report.sarif").read_text())
    assert report["version"] == "2.1.0"
    assert report["runs"][0]["results"][0]["ruleId"] == "pool-trespass"


def test_a_second_step_does_not_repeat_the_summary_of_the_first_step(runner: Runner) -> None:
    (runner.checkout / "train.yaml").write_text(GPU_POD)
    assert runner.check().summary
    assert runner.check(summary="false").summary == ""
    assert runner.check(policy="missing.yaml").summary == ""


def test_path_exclude_policy_and_namespace_inputs_are_passed_to_check(runner: Runner) -> None:
    for directory in ("a", "b c", "charts"):
        (runner.checkout / directory).mkdir()
        (runner.checkout / directory / "web.yaml").write_text(TRESPASSER)
    assert runner.check(paths="a\nb c\n").out.count("::error ") == 2
    assert runner.check(paths=".", exclude="charts\nb c").out.count("::error ") == 1
    assert runner.check(namespace="kube-system").status == 0
    policy = yaml.safe_load((PROJECT / "policies" / "default.yaml").read_text())
    policy["spec"]["rules"]["pool-trespass"] = "warn"
    (runner.checkout / ".policy.yaml").write_text(yaml.safe_dump(policy))
    assert runner.check(policy=".policy.yaml").status == 0
    assert runner.check(policy=".policy.yaml", fail_on="warn").status == 1


def test_a_comment_says_what_a_change_of_the_policy_does(runner: Runner) -> None:
    (runner.checkout / "plain.yaml").write_text(PLAIN_POD)
    for name, mode in (("old.yaml", "enforce"), (".policy.yaml", "audit")):
        text = default_policy_text().replace("mode: enforce", f"mode: {mode}")
        (runner.checkout / name).write_text(text)
    done = runner.check(paths="plain.yaml", policy=".policy.yaml", compare="old.yaml")
    assert done.status == 0
    assert Path(done.outputs["comment"]).read_text() in done.summary
    assert "Denied before, allowed now" in done.summary
    assert runner.check(paths="plain.yaml", compare="old.yaml").status == 2


def test_the_strict_input_is_passed_to_check(runner: Runner) -> None:
    run = {"apiVersion": "kubeai.org/v1", "kind": "Model", "metadata": {"name": "llama"}}
    task = yaml.safe_dump({**run, "spec": {"taskRef": {"name": "build"}}})
    (runner.checkout / "web.yaml").write_text(task)
    assert runner.check().status == 0
    assert runner.check(strict="true").status == 1


def test_the_cache_is_named_after_the_pinned_libraries(tmp_path: Path) -> None:
    [named] = [step for step in SCRIPTS if step.get("id") == "cache"]
    output = tmp_path / "output"
    environ = {"PATH": os.environ["PATH"], "SYSTEM": "Linux-X64", "ACTION": str(PROJECT)}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", named["run"]]
    subprocess.run(command, env={**environ, "GITHUB_OUTPUT": str(output)}, check=True)
    assert re.fullmatch(r"key=gpufence-pip-Linux-X64-[0-9a-f]{64}\n", output.read_text())


HOSTILE = [
    "'; touch PWNED; '",
    "x\ny; touch PWNED",
    "--output=json=PWNED",
    "${IFS}touch${IFS}PWNED",
    "a && touch PWNED",
    "::set-output name=status::0",
]


TEXT_INPUTS = (
    *("paths", "exclude", "policy", "namespace"),
    *("fail_on", "strict", "sarif", "summary"),
)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_inputs_are_not_executed(runner: Runner, text: str) -> None:
    (runner.checkout / "web.yaml").write_text(PLAIN_POD)
    done = runner.check(**dict.fromkeys(TEXT_INPUTS, text))
    assert not list(runner.checkout.rglob("PWNED"))
    assert "Traceback" not in done.err
    assert done.status == 2, "what does not exist is no success"
    assert done.outputs.get("status", "2") == "2"


@pytest.mark.parametrize("name", TEXT_INPUTS)
def test_no_input_is_evaluated_as_code(runner: Runner, name: str) -> None:
    (runner.checkout / "web.yaml").write_text(PLAIN_POD)
    done = runner.check(**{name: '$(touch PWNED)`touch PWNED`"; touch PWNED; #'})
    assert not list(runner.checkout.rglob("PWNED"))
    assert "Traceback" not in done.err
    assert done.outputs["status"] == str(done.status)
    rejected = ("paths", "policy", "namespace", "fail_on")
    assert done.status == (2 if name in rejected else 0)


def test_a_sarif_path_with_a_newline_is_rejected_and_sets_no_output(runner: Runner) -> None:
    (runner.checkout / "web.yaml").write_text(TRESPASSER)
    done = runner.check(sarif="a.sarif\nstatus=0")
    assert (done.status, done.outputs) == (2, {})
    assert "name one file" in done.out
