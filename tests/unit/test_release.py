"""`make bump` sets one version everywhere and closes the changelog section."""

from __future__ import annotations

import tomllib
from datetime import date
from pathlib import Path

import pytest
import yaml

import make_release as release
from make_release import ReleaseError, bump, compare, examples, section
from paths import CHART, PROJECT

TODAY = date(2026, 12, 1)
CHANGES = "### Fixed\n\n- A fault."


@pytest.fixture(autouse=True)
def changelog(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A changelog with one change."""
    path = tmp_path / "CHANGELOG.md"
    path.write_text(f"# Changelog\n\n## [Unreleased]\n\n{CHANGES}\n\n## [0.1.0] - 2026-11-21\n")
    monkeypatch.setattr(release, "CHANGELOG", path)
    return path


def test_the_version_is_the_same_everywhere_after_a_bump(changelog: Path) -> None:
    texts = bump("7.8.9", TODAY)
    assert tomllib.loads(texts[PROJECT / "pyproject.toml"])["project"]["version"] == "7.8.9"
    chart = yaml.safe_load(texts[CHART / "Chart.yaml"])
    assert (chart["version"], chart["appVersion"]) == ("7.8.9", "7.8.9")
    assert f"## [7.8.9] - {TODAY}\n" in texts[changelog]


def test_examples_name_the_version_that_they_need_after_a_bump() -> None:
    texts = bump("7.8.9", TODAY)
    quickstart = texts[PROJECT / "docs/get-started/quickstart.md"]
    assert "kind load docker-image gpufence:7.8.9" in quickstart
    assert "rev: v7.8.9" in texts[PROJECT / "docs/ci/pre-commit.md"]
    after = {path: texts.get(path, path.read_text()) for path in examples()}
    assert [path for path, text in after.items() if release.version() in text] == []


def test_builds_that_differ_are_rejected(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "gpufence.whl").write_text("same")
        (tmp_path / name / "gpufence.tar.gz").write_text("same")
    compare(tmp_path / "a", tmp_path / "b")
    (tmp_path / "b" / "gpufence.tar.gz").write_text("other")
    with pytest.raises(ReleaseError, match=r"gpufence\.tar\.gz differs from a build of the commit"):
        compare(tmp_path / "a", tmp_path / "b")


def test_the_unreleased_changes_become_the_section_of_the_version(changelog: Path) -> None:
    after = bump("7.8.9", TODAY)[changelog]
    assert section(after, "7.8.9") == CHANGES
    assert section(after, "Unreleased") == ""


def test_the_project_and_the_chart_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == release.version()


@pytest.mark.parametrize("wanted", ["", "v0.2.0", "0.2", "0.2.0-rc.1"])
def test_what_is_not_a_version_is_rejected(wanted: str) -> None:
    with pytest.raises(ReleaseError, match="is not a version: use X"):
        bump(wanted, TODAY)


def test_a_bump_without_changes_is_rejected(changelog: Path) -> None:
    changelog.write_text("# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-11-21\n\n- All.\n")
    with pytest.raises(ReleaseError, match="nothing under"):
        bump("7.8.9", TODAY)
