"""The progress that a terminal shows while files are read."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.gpufence import COMMAND
from running import PLAIN_POD, Run
from webhook.cli.report import terminal as progress

FILES = [
    "a.yaml",
    "apps/web/deploy/web.yaml",
    "apps/web/test/web.yaml",
    "apps/db/deploy/db.yml",
    "apps/db/README.md",
    "charts/chart/templates/a.yaml",
    "charts/values.tmpl.yaml",
    ".git/config.yaml",
]


@pytest.fixture
def tree(gpufence: Run, tmp_path: Path) -> Path:
    """A directory of manifests, in which the command line is run."""
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PLAIN_POD)
    return tmp_path


def output_on_a_terminal(*args: str | Path) -> tuple[bytes, bytes]:
    """Run the command with a terminal for standard error; return that, and standard output."""
    ours, theirs = pty.openpty()
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(
        [COMMAND, *args], stdout=subprocess.PIPE, stderr=theirs, env=environ
    ) as process:
        os.close(theirs)
        assert process.stdout is not None
        out = process.stdout.read()
    return b"".join(read(ours)), out


def read(descriptor: int) -> Iterator[bytes]:
    """Yield what a terminal was given until its other end is closed."""
    try:
        while data := os.read(descriptor, 4096):
            yield data
    except OSError:  # which is how Linux says so
        os.close(descriptor)


def test_a_short_run_shows_no_progress_bar(tree: Path) -> None:
    err, out = output_on_a_terminal("check", tree)
    assert err == b""
    assert b"6 objects" in out


class Terminal:
    """Standard error as a bar sees it."""

    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


@pytest.mark.usefixtures("tree")
def test_a_long_run_shows_a_progress_bar_on_standard_error_only(
    gpufence: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    monkeypatch.setattr(progress, "_REFRESH", -1.0)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    report = gpufence("check", "--output", "json", ".").report
    assert len(report["results"]) == 6
    assert "Reading" in terminal.text
    assert "50%" in terminal.text
    # It is wiped away at the end.
    assert terminal.text.endswith("\x1b[2K")


@pytest.mark.usefixtures("tree")
def test_a_quiet_run_shows_no_progress_bar(gpufence: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    gpufence("check", "--quiet", ".")
    assert terminal.text == ""
