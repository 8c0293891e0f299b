"""Directories without what is excluded, patterns, and Helm charts, which helm renders."""

from __future__ import annotations

from pathlib import Path

import pytest

from running import FILES, PLAIN_POD, TRESPASSER, Run


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


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """Return a chart; its templates are no YAML."""
    chart = tmp_path / "web"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: web\nversion: 1.0.0\n")
    (chart / "templates" / "web.yaml").write_text("{{ if }}\n")
    return chart


@pytest.fixture
def helm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a program that stands for helm; what it prints is in the file ``rendered``."""
    program = tmp_path / "bin" / "helm"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\ncat {tmp_path}/rendered\n')
    program.chmod(0o755)
    (tmp_path / "rendered").write_text(f"# Source: web/templates/web.yaml\n{TRESPASSER}")
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return program


@pytest.mark.usefixtures("helm", "chart")
def test_a_chart_is_rendered_and_checked(gpufence: Run, tmp_path: Path) -> None:
    done = gpufence("check", "web")
    assert done.status == 1
    assert done.out.startswith("denied   Deployment default/web  <helm template web>:2\n")
    assert (tmp_path / "arguments").read_text() == "template -- web\n"
    annotation = gpufence("check", "-o", "github", "web").out
    assert "file=" not in annotation
    assert "::<helm template web>:10: " in annotation


@pytest.mark.usefixtures("helm", "chart")
def test_a_chart_in_a_subdirectory_is_rendered_and_can_be_excluded(
    gpufence: Run, tmp_path: Path
) -> None:
    (tmp_path / "apps.yaml").write_text(PLAIN_POD)
    report = gpufence("check", "-o", "json", ".").report
    paths = [result["source"]["path"] for result in report["results"]]
    assert paths == ["apps.yaml", "<helm template web>"]
    assert gpufence("check", "--exclude", "web", ".").status == 0


@pytest.mark.usefixtures("chart")
def test_a_chart_without_helm_is_an_error_with_the_command_to_run(
    gpufence: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    done = gpufence("check", "-o", "json", "web")
    problem = "is a Helm chart, and helm is not in PATH"
    cure = "Where helm is installed, run helm template web | gpufence check -"
    assert (done.status, done.err) == (2, f"Error: web: {problem}. {cure}.\n")


@pytest.mark.usefixtures("chart")
def test_a_chart_that_helm_cannot_render_is_an_error(gpufence: Run, helm: Path) -> None:
    helm.write_text('#!/bin/sh\necho "Error: values: image.tag is required" >&2\nexit 1\n')
    done = gpufence("check", "web")
    assert done.status == 2
    assert "cannot be rendered with its default values: values: image.tag is required." in done.out


@pytest.mark.parametrize(
    "field",
    [
        "patches: [{path: patch.yaml}]",
        "patchesStrategicMerge: [patch.yaml]",
        "patchesJson6902: [{target: {kind: Pod, name: web}, path: ../overlay/patch.yaml}]",
    ],
)
def test_the_patches_of_a_kustomization_are_skipped_with_a_note(
    gpufence: Run, tmp_path: Path, field: str
) -> None:
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text(f"kind: Kustomization\n{field}\n")
    (overlay / "patch.yaml").write_text(TRESPASSER)
    (tmp_path / "web.yaml").write_text(PLAIN_POD)
    done = gpufence("check", "--output", "json", tmp_path)
    verdicts = {Path(r["source"]["path"]).name: r["verdict"] for r in done.report["results"]}
    assert verdicts == {
        "kustomization.yaml": "skipped",
        "patch.yaml": "skipped",
        "web.yaml": "allowed",
    }
    assert done.status == 0
    assert "Note: skipped 1 patch file of kustomizations." in done.err


def test_a_patch_that_is_named_itself_is_checked(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("patches: [{path: patch.yaml}]\n")
    (tmp_path / "patch.yaml").write_text(TRESPASSER)
    assert gpufence("check", tmp_path / "patch.yaml").status == 1
