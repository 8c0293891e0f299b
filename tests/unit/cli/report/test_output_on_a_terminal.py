"""What a terminal shows: colors, wrapped lines, and the progress of a long run."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from running import BROKEN, CONFIG_MAP, GPU_POD, TRESPASSER, Run

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
OnTerminal = Callable[..., tuple[int, str]]


@pytest.fixture
def on_terminal(quick_command: Path) -> OnTerminal:
    """Run the command with a terminal as its output; return status and what was written."""
    return partial(run_on_terminal, quick_command)


def run_on_terminal(command: Path, columns: int, *args: str, **environ: str) -> tuple[int, str]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    inherited = {
        k: v
        for k, v in os.environ.items()
        if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    }
    process = subprocess.Popen(
        [command, *args],
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=subprocess.PIPE,
        env=inherited | {"TERM": "xterm-256color"} | environ,
    )
    os.close(slave)
    written = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # Linux: the other end is closed
            break
        if not part:
            break
        written += part
    os.close(master)
    _, err = process.communicate()
    assert err == b""
    return process.returncode, written.decode().replace("\r\n", "\n")


@pytest.fixture
def mixed(tmp_path: Path) -> str:
    path = tmp_path / "mixed.yaml"
    path.write_text("---\n".join([TRESPASSER, GPU_POD, BROKEN, CONFIG_MAP]))
    return str(path)


def test_output_on_a_terminal_is_colored(
    gpufence: Run, on_terminal: OnTerminal, mixed: str
) -> None:
    status, shown = on_terminal(200, "check", mixed)
    assert status == 2
    assert "\x1b[31m\x1b[1mdenied" in shown
    assert "\x1b[32m+  tolerations:\x1b[0m" in shown
    plain = ESCAPE.sub("", shown)
    assert "\x1b" not in plain
    assert plain.split() == gpufence("check", mixed).out.split()


def test_no_color_and_a_dumb_terminal_disable_color(on_terminal: OnTerminal, mixed: str) -> None:
    environs = ({"NO_COLOR": "1"}, {"TERM": "dumb"})
    shown = [on_terminal(200, "check", mixed, **environ)[1] for environ in environs]
    assert ["\x1b" in each for each in shown] == [False, False]


def test_force_color_colors_standard_output_but_not_report_files(
    gpufence: Run, mixed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[31m\x1b[1mdenied" in gpufence("check", mixed).out
    assert "\x1b[" in gpufence("explain", "device-leak").out
    gpufence("check", "--output", "text=report.txt", mixed)
    assert "\x1b" not in (tmp_path / "report.txt").read_text()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in gpufence("check", mixed).out


def test_narrow_terminals_wrap_between_words_and_keep_the_indent(
    on_terminal: OnTerminal, mixed: str
) -> None:
    _, shown = on_terminal(60, "check", mixed)
    plain = ESCAPE.sub("", shown).splitlines()
    start = next(i for i, line in enumerate(plain) if "pool-trespass" in line) + 1
    start = next(i for i in range(start, len(plain)) if plain[i].startswith("    "))
    paragraph = plain[start : start + 3]
    assert all(line.startswith("    ") and len(line) <= 60 for line in paragraph)
    assert all(line == line.rstrip() for line in plain)
