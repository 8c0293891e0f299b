"""Inputs: directories without what is excluded, patterns, and what a terminal shows meanwhile."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.gpufence import COMMAND
from running import PLAIN_POD, TRESPASSER, Run
from webhook.cli.manifests.files import Exclusion
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


def paths_of(gpufence: Run, *args: str) -> list[str]:
    report = gpufence("check", "--output", "json", *args).report
    return [result["source"]["path"] for result in report["results"]]


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        ([], [0, 3, 1, 2, 5, 6]),
        (["charts"], [0, 3, 1, 2]),
        (["charts/"], [0, 3, 1, 2]),
        (["./charts"], [0, 3, 1, 2]),
        (["*.yaml"], [3]),
        (["*.tmpl.yaml", "test"], [0, 3, 1, 5]),
        (["apps/*/test"], [0, 3, 1, 5, 6]),
        (["/apps"], [0, 5, 6]),
        (["apps/**/*.yaml"], [0, 3, 5, 6]),
        (["**/templates", "[ab].yaml"], [3, 1, 2, 6]),
        (["web/deploy", "Charts"], [0, 3, 1, 2, 5, 6]),
    ],
)
def test_excluded_paths_are_skipped(gpufence: Run, patterns: list[str], left: list[int]) -> None:
    args = [arg for pattern in patterns for arg in ("--exclude", pattern)]
    assert paths_of(gpufence, *args, ".") == [FILES[index] for index in left]


def test_exclude_patterns_are_relative_to_the_directory_argument(gpufence: Run, tree: Path) -> None:
    assert paths_of(gpufence, "--exclude", "*/test", "apps") == [FILES[3], FILES[1]]
    # Names of directories above it do not count.
    assert paths_of(gpufence, "--exclude", tree.name, str(tree / "apps" / "db")) == [
        str(tree / FILES[3])
    ]


@pytest.mark.usefixtures("tree")
def test_exclude_does_not_apply_to_a_file_argument(gpufence: Run) -> None:
    assert paths_of(gpufence, "--exclude", "a.yaml", "a.yaml") == ["a.yaml"]


@pytest.mark.usefixtures("tree")
def test_a_directory_whose_files_are_all_excluded_is_an_error(gpufence: Run) -> None:
    assert gpufence("check", "--exclude", "*", "charts").status == 2


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.yaml", [0]),
        ("apps/*/deploy", [3, 1]),
        ("apps/*/*/*.y*ml", [3, 1, 2]),
        ("apps/**", [3, 1, 2]),
        ("**/web.yaml", [1, 2]),
        ("./apps/w[aeiou]b/deploy/web.yam?", [1]),
        ("*", [0, 3, 1, 2, 5, 6]),
    ],
)
def test_a_glob_argument_reads_the_matching_files_and_directories(
    gpufence: Run, pattern: str, found: list[int]
) -> None:
    assert paths_of(gpufence, pattern) == [FILES[index] for index in found]


@pytest.mark.usefixtures("tree")
def test_matches_of_a_pattern_can_be_excluded(gpufence: Run) -> None:
    assert paths_of(gpufence, "--exclude", "test", "apps/**/*.yaml") == [FILES[1]]
    assert paths_of(gpufence, "--exclude", "web/deploy", "apps/*/*") == [FILES[3], FILES[2]]


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize("pattern", ["nowhere/*.yaml", "apps/db/*.md", "*.txt"])
def test_a_glob_argument_without_matches_is_an_error(gpufence: Run, pattern: str) -> None:
    done = gpufence("check", "-o", "json", pattern)
    assert done.status == 2
    problem = "matches no manifests (.yaml, .yml, .json). Check the pattern."
    assert done.errors == [f"{pattern}: {problem}"]


def test_a_file_name_with_glob_characters_is_read_literally(gpufence: Run, tree: Path) -> None:
    (tree / "[a].yaml").write_text(TRESPASSER)
    assert paths_of(gpufence, "[a].yaml") == ["[a].yaml"]


@pytest.mark.usefixtures("tree")
def test_mutate_skips_excluded_paths(gpufence: Run) -> None:
    done = gpufence("mutate", "--exclude", "apps", "--exclude", "charts", ".")
    assert done.out.count("kind: Pod") == 1


def test_no_path_is_excluded_without_a_pattern() -> None:
    assert "a.yaml" not in Exclusion([])


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
