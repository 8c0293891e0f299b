"""Directories without what is excluded, and Helm charts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from running import FILES, PLAIN_POD, TRESPASSER, Run


def paths_of(gpufence: Run, *args: str) -> list[str]:
    report = gpufence("check", "--output", "json", *args).report
    return [result["source"]["path"] for result in report["results"]]


@pytest.mark.usefixtures("tree")
def test_excluded_paths_are_skipped(gpufence: Run, subtests: pytest.Subtests) -> None:
    for patterns, left in (
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
    ):
        with subtests.test(patterns=patterns):
            args = [arg for pattern in patterns for arg in ("--exclude", pattern)]
            assert paths_of(gpufence, *args, ".") == [FILES[index] for index in left]


def test_exclude_patterns_are_relative_to_the_directory_argument(gpufence: Run, tree: Path) -> None:
    assert paths_of(gpufence, "--exclude", "*/test", "apps") == [FILES[3], FILES[1]]
    # Names of directories above it do not count.
    assert paths_of(gpufence, "--exclude", tree.name, str(tree / "apps" / "db")) == [
        str(tree / FILES[3])
    ]


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """Return a chart; its templates are no YAML."""
    chart = tmp_path / "web"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: web\nversion: 1.0.0\n")
    (chart / "templates" / "web.yaml").write_text("{{ if }}\n")
    return chart


@pytest.mark.usefixtures("chart")
def test_a_chart_is_a_note_and_its_files_are_read(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "apps.yaml").write_text(PLAIN_POD)
    done = gpufence("check", "--output", "json", ".")
    verdicts = {result["source"]["path"]: result["verdict"] for result in done.report["results"]}
    assert verdicts == {
        "apps.yaml": "allowed",
        "web": "skipped",
        "web/templates/web.yaml": "skipped",
    }
    assert done.status == 0
    assert "skipped web: is a Helm chart; check what helm template prints" in done.err
    assert paths_of(gpufence, "web") == ["web", "web/templates/web.yaml"]
    assert gpufence("check", "--strict", "--exclude", "templates", ".").status == 1
    assert gpufence("check", "--exclude", "web", "--strict", ".").status == 0


@pytest.mark.parametrize("named", [".", "../tree"])
def test_a_chart_file_hides_no_manifest_beside_it(
    gpufence: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    monkeypatch.chdir(tree)
    (tree / "Chart.yaml").write_text("apiVersion: v2\nname: web\nversion: 1.0.0\n")
    (tree / "web.yaml").write_text(TRESPASSER)
    done = gpufence("check", "--output", "json", named)
    assert done.status == 1
    assert "denied" in done.verdicts


def test_the_patches_of_a_kustomization_are_skipped_with_a_note(
    gpufence: Run, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    (overlay / "patch.yaml").write_text(TRESPASSER)
    (tmp_path / "web.yaml").write_text(PLAIN_POD)
    names = {"kustomization.yaml": "skipped", "patch.yaml": "skipped", "web.yaml": "allowed"}
    for field in (
        "patches: [{path: patch.yaml}]",
        "patchesStrategicMerge: [patch.yaml]",
        "patchesJson6902: [{target: {kind: Pod, name: web}, path: ../overlay/patch.yaml}]",
    ):
        with subtests.test(field=field):
            (overlay / "kustomization.yaml").write_text(f"kind: Kustomization\n{field}\n")
            done = gpufence("check", "--output", "json", tmp_path)
            verdicts = {
                Path(r["source"]["path"]).name: r["verdict"] for r in done.report["results"]
            }
            assert (done.status, verdicts) == (0, names)
            assert "patch.yaml: is a patch of a kustomization" in done.err
            assert gpufence("check", "--strict", tmp_path).status == 1


def test_a_patch_that_is_named_itself_is_checked(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("patches: [{path: patch.yaml}]\n")
    (tmp_path / "patch.yaml").write_text(TRESPASSER)
    assert gpufence("check", tmp_path / "patch.yaml").status == 1


@pytest.mark.parametrize(
    "name", [".web.yaml", ".apps/web.yaml", "apps/.hidden/deep/web.json", ".a/.b.yml"]
)
def test_what_is_hidden_is_listed(gpufence: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "pod.yaml").write_text(PLAIN_POD)
    hidden = tmp_path / name
    hidden.parent.mkdir(parents=True, exist_ok=True)
    hidden.write_text(TRESPASSER)
    done = gpufence("check", "--output", "json", ".")
    assert (done.status, sorted(done.verdicts)) == (0, ["allowed", "skipped"])
    assert "is hidden and not checked" in done.err
    assert gpufence("check", "--strict", ".").status == 1
    assert gpufence("check", "--strict", "--exclude", ".*", ".").status == 0
    assert gpufence("check", name).status == 1


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_what_is_hidden_and_not_tracked_is_not_listed(
    gpufence: Run, tmp_path: Path, version: str
) -> None:
    """As a virtual environment with manifests in it. A pull request consists of tracked files."""

    def git(*arguments: str) -> None:
        subprocess.run(["git", *arguments], check=True, capture_output=True)

    for name in ("pod.yaml", ".venv/pod.yaml", "apps/.venv/pod.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(PLAIN_POD)
    git("init")
    git("add", "pod.yaml")
    git("update-index", "--index-version", version)
    expected = 1 if version == "4" else 0
    assert gpufence("check", "--strict", ".").status == expected
    git("add", "--force", "apps/.venv/pod.yaml")
    done = gpufence("check", "--strict", "apps")
    assert (done.status, "apps/.venv: is hidden" in done.err) == (1, True), done.err


def test_hidden_files_that_hold_no_objects_are_not_listed(gpufence: Run, tmp_path: Path) -> None:
    for name in (".github/workflows/ci.yaml", ".pre-commit-config.yaml", ".git/config.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("on: push\n")
    (tmp_path / ".git" / "object.yaml").write_text(TRESPASSER)
    (tmp_path / "pod.yaml").write_text(PLAIN_POD)
    done = gpufence("check", "--strict", "--output", "json", ".")
    assert (done.status, done.verdicts, done.err) == (0, ["allowed"], "")


def test_a_link_out_of_the_directory_is_listed_and_not_read(
    gpufence: Run, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "web.yaml").write_text(TRESPASSER)
    (tmp_path / "pod.yaml").write_text(PLAIN_POD)
    (tmp_path / "copy.yaml").symlink_to("pod.yaml")
    (tmp_path / "file.yaml").symlink_to(outside / "web.yaml")
    (tmp_path / "directory").symlink_to(outside)
    done = gpufence("check", "--output", "json", ".")
    verdicts = {r["source"]["path"]: r["verdict"] for r in done.report["results"]}
    links = {"file.yaml": "skipped", "directory": "skipped", "copy.yaml": "allowed"}
    assert verdicts == {"pod.yaml": "allowed", **links}
    assert "is a link out of the directory" in done.err
    assert gpufence("check", "--strict", ".").status == 1


def test_a_kustomization_that_makes_other_objects_is_listed(
    gpufence: Run, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    (tmp_path / "pod.yaml").write_text(PLAIN_POD)
    for fields in (
        "patches: [{target: {kind: Pod}, patch: '[]'}]",
        "resources: [https://example.com/base?ref=main]",
        "helmCharts: [{name: web}]",
        "patches: 5",
    ):
        with subtests.test(fields=fields):
            (tmp_path / "kustomization.yaml").write_text(f"{fields}\n")
            done = gpufence("check", ".")
            assert done.status == 0
            assert "skipped kustomization.yaml: makes objects that stand in no file" in done.err
            assert gpufence("check", "--strict", ".").status == 1


def test_an_object_in_a_file_with_the_name_of_a_kustomization_is_checked(
    gpufence: Run, tmp_path: Path
) -> None:
    (tmp_path / "kustomization.yaml").write_text(f"{TRESPASSER}patches: [{{patch: x}}]\n")
    assert gpufence("check", ".").status == 1
