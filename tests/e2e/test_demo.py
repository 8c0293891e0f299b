"""`make demo`, as its reader sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane import stage, story
from controlplane.screen import StoryError, expect


@pytest.mark.usefixtures("control_plane")  # so that its binaries are there before the clock runs
def test_the_demo_plays_every_chapter_and_comes_out_as_told(tmp_path: Path) -> None:
    played = subprocess.run(
        [sys.executable, "-m", "controlplane.demo", "--folder", tmp_path],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert played.returncode == 0, played.stdout + played.stderr
    chapters = [line for line in played.stdout.splitlines() if line.startswith("== ")]
    assert len(chapters) == len(story.CHAPTERS) + 2
    assert chapters[-1].startswith("== All as told")
    assert "\x1b" not in played.stdout
    assert str(tmp_path / "cluster" / "kubeconfig") in played.stdout


def test_a_second_demo_in_the_same_folder_is_told_of_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with stage.alone_in(tmp_path):
        assert stage.main(["--folder", str(tmp_path)]) == 1
    assert f"A demo is running in {tmp_path} already" in capsys.readouterr().err


def test_what_did_not_come_out_as_told_is_an_error() -> None:
    expect(True, "the sun rises")
    with pytest.raises(StoryError, match="the sun sets"):
        expect([], "the sun sets")
