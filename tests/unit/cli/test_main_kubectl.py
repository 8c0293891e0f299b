"""``kubectl gpufence``: found and run by the real kubectl."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from running import PLAIN_POD, TRESPASSER

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
