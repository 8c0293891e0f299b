"""Which policy a command uses where the command line names none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from running import PLAIN_POD, TRESPASSER, Run


@pytest.fixture
def project(gpufence: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory in a project whose policy only warns of trespassers."""
    policy = gpufence("policy", "show").out.replace("pool-trespass: enforce", "pool-trespass: warn")
    (tmp_path / "fence").mkdir()
    (tmp_path / "fence" / "policy.yaml").write_text(policy)
    (tmp_path / ".gpufence.yaml").write_text("# The team's policy.\npolicy: fence/policy.yaml\n")
    below = tmp_path / "apps" / "web"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    return below


def test_the_nearest_project_file_names_the_policy(
    gpufence: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = gpufence("check", "-", stdin=TRESPASSER)
    policy = "../../fence/policy.yaml, from ../../.gpufence.yaml"
    assert (done.status, done.err) == (0, f"Policy: {policy}\n")
    assert f"1 object: 1 allowed; 1 warning (policy: {policy})\n" in done.out
    (project / ".gpufence.yaml").write_text("policy: nowhere.yaml\n")
    done = gpufence("check", "-", stdin=TRESPASSER)
    assert done.err.startswith("Error: .gpufence.yaml: policy: nowhere.yaml does not exist. Name")
    monkeypatch.setenv("GPUFENCE_POLICY", "gone.yaml")
    done = gpufence("check", "-", stdin=TRESPASSER)
    assert done.err.startswith("Error: GPUFENCE_POLICY: gone.yaml does not exist. Check the path")


@pytest.mark.usefixtures("project")
def test_the_option_overrides_the_variable_and_the_project_file(
    gpufence: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = tmp_path / "strict.yaml"
    strict.write_text(gpufence("policy", "show").out)
    monkeypatch.setenv("GPUFENCE_POLICY", str(strict))
    done = gpufence("check", "-", stdin=TRESPASSER)
    assert done.status == 1
    assert f"(policy: {strict}, from GPUFENCE_POLICY)" in done.out
    done = gpufence("check", "--policy", "../../fence/policy.yaml", "-", stdin=TRESPASSER)
    assert done.status == 0
    assert "(policy: ../../fence/policy.yaml)" in done.out
    monkeypatch.setenv("GPUFENCE_POLICY", "")
    assert gpufence("check", "-", stdin=TRESPASSER).status == 0


@pytest.mark.usefixtures("project")
def test_serve_and_policy_show_ignore_the_project_file(gpufence: Run) -> None:
    assert "pool-trespass: enforce" in gpufence("policy", "show").out
    assert "GPUFENCE_POLICY" not in gpufence("serve", "--help").out


def test_an_invalid_project_file_is_an_error(
    gpufence: Run, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    nothing = "names no policy. Write one line: policy: PATH."
    for text, problem in {
        **dict.fromkeys(("", "- policy.yaml\n", "policy: 3\n"), nothing),
        "policy: a\nnamespace: ml\n": "namespace: unknown field; accepted: policy.",
        "policy: [\n": "2:1: document 1: does not parse as YAML: ",
    }.items():
        with subtests.test(text=text):
            (tmp_path / ".gpufence.yaml").write_text(text)
            done = gpufence("check", "-", stdin=PLAIN_POD)
            assert (done.status, done.out) == (2, "")
            assert done.err.startswith("Error: .gpufence.yaml:")
            assert problem in done.err


def test_a_project_file_names_only_regular_files_below_its_directory(
    gpufence: Run, project: Path, subtests: pytest.Subtests
) -> None:
    (project / "link.yaml").symlink_to("../../fence/policy.yaml")
    (project / "linked").symlink_to("../../fence")
    (project / "zero").symlink_to("/dev/zero")
    os.mkfifo(project / "pipe")
    outside = "is outside of the directory"
    cure = "Name a file below the directory of this file, or use --policy"
    for path, problem in {
        "/dev/zero": "/dev/zero is an absolute path",
        "../../fence/policy.yaml": f"../../fence/policy.yaml {outside}",
        "a/../../web.yaml": f"a/../../web.yaml {outside}",
        "link.yaml": f"link.yaml {outside}",
        "linked/policy.yaml": f"linked/policy.yaml {outside}",
        "zero": f"zero {outside}",
        "pipe": "pipe is not a regular file",
        ".": ". is not a regular file",
        '"a\\0"': "a\\x00 is not the path of a file",
        '"\\ud800"': "",
        '"\\e[2J\\u202e/../.."': f"\\x1b[2J\\u202e/../.. {outside}",
    }.items():
        with subtests.test(path=path):
            (project / ".gpufence.yaml").write_text(f"policy: {path}\n")
            done = gpufence("check", "-", stdin=TRESPASSER)
            assert (done.status, done.out) == (2, "")
            expected = (
                f"Error: .gpufence.yaml: policy: {problem}. {cure}.\n" if problem else done.err
            )
            assert done.err == expected


def test_a_project_file_may_name_a_link_to_a_file_below_its_directory(
    gpufence: Run, project: Path
) -> None:
    (project / "a").mkdir()
    (project / "a" / "strict.yaml").write_text(gpufence("policy", "show").out)
    (project / "link.yaml").symlink_to("a/strict.yaml")
    (project / ".gpufence.yaml").write_text("policy: a/../link.yaml\n")
    assert gpufence("check", "-", stdin=TRESPASSER).status == 1


def test_a_large_project_file_is_not_read_whole(gpufence: Run, tmp_path: Path) -> None:
    with (tmp_path / ".gpufence.yaml").open("wb") as file:
        file.truncate(1 << 40)
    done = gpufence("check", "-", stdin=PLAIN_POD)
    assert done.err == "Error: .gpufence.yaml: is larger than 4 MiB. Name a smaller file.\n"
