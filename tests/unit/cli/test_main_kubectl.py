"""``kubectl gpufence``: found, run and completed by the real kubectl."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from running import PLAIN_POD, TRESPASSER
from webhook.tools.cli.main import cli, kubectl_complete

PROGRAMS = Path(sys.executable).parent


def run(kubectl_binary: Path, directory: Path, *args: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(PROGRAMS), os.environ["PATH"]])
    return subprocess.run(
        [kubectl_binary, *args],
        cwd=directory,
        env=os.environ | {"PATH": path, "KUBERC": "off"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_kubectl_passes_arguments_and_the_exit_status(kubectl_binary: Path, tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text(PLAIN_POD)
    (tmp_path / "bad.yaml").write_text(TRESPASSER)
    good = run(kubectl_binary, tmp_path, "gpufence", "check", "web.yaml")
    bad = run(kubectl_binary, tmp_path, "gpufence", "check", "bad.yaml")
    assert (good.returncode, bad.returncode) == (0, 1)
    assert "1 object: 1 allowed" in good.stdout
    assert "pool-trespass" in bad.stdout


def test_the_usage_names_kubectl_gpufence(kubectl_binary: Path, tmp_path: Path) -> None:
    shown = run(kubectl_binary, tmp_path, "gpufence", "check", "--help").stdout
    assert shown.startswith("Usage: kubectl gpufence check [OPTIONS] [PATH]...")
    wrong = run(kubectl_binary, tmp_path, "gpufence", "chek")
    assert wrong.returncode == 2
    assert "Try 'kubectl gpufence --help' for help." in wrong.stderr


def test_kubectl_completes_the_options_of_the_plugin(kubectl_binary: Path, tmp_path: Path) -> None:
    done = run(kubectl_binary, tmp_path, "__complete", "gpufence", "check", "--fai")
    assert done.stdout.splitlines()[0].startswith("--fail-on\t")
    assert done.stdout.splitlines()[-1] == ":4"


def test_complete_prints_completions_and_the_directive(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    every = cli.list_commands(cli.make_context("x", [], resilient_parsing=True))
    completions = {
        "polic": ["policy", ":4"],
        "policy sh": ["show", ":4"],
        "check --color a": ["auto", "always", ":4"],
        "check manif": [":0"],  # a file
        "explain device-l": ["device-leak", ":0"],  # a rule or a file
        "": [*every, ":4"],
    }
    for words, expected in completions.items():
        with subtests.test(words=words):
            monkeypatch.setattr(sys, "argv", ["kubectl_complete-gpufence", *words.split()])
            assert kubectl_complete() == 0
            lines = capsys.readouterr().out.splitlines()
            assert [line.partition("\t")[0] for line in lines] == expected
