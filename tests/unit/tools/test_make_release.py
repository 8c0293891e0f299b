"""`make bump` sets one version everywhere, and `make release` builds the same each time."""

from __future__ import annotations

import re
import shutil
import tarfile
import tomllib
from datetime import date
from pathlib import Path

import pytest
import yaml
from hatchling.builders.sdist import SdistBuilder
from packaging.version import Version
from trove_classifiers import classifiers

import make_release as release
import render
from deploy.chart import RELEASE, Helm
from make_release import ReleaseError, bump, examples, package, section
from paths import CHART, PROJECT

PAGES = PROJECT / "docs"
TODAY = date(2026, 12, 1)
CHANGES = "### Fixed\n\n- A fault."


@pytest.fixture(autouse=True)
def changelog(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A changelog with one change."""
    path = tmp_path / "CHANGELOG.md"
    path.write_text(f"# Changelog\n\n## [Unreleased]\n\n{CHANGES}\n\n## [0.1.0] - 2026-11-21\n")
    monkeypatch.setattr(release, "CHANGELOG", path)
    return path


@pytest.mark.parametrize("wanted", ["7.8.9", "7.8.9.dev0"])
def test_the_version_is_the_same_everywhere_after_a_bump(wanted: str, changelog: Path) -> None:
    texts = bump(wanted, TODAY)
    assert tomllib.loads(texts[PROJECT / "pyproject.toml"])["project"]["version"] == wanted
    chart = yaml.safe_load(texts[CHART / "Chart.yaml"])
    # Helm accepts Semantic Versioning only, which writes pre-releases with a hyphen.
    assert (chart["version"], chart["appVersion"]) == (wanted.replace(".dev", "-dev."), wanted)
    after = texts.get(changelog, changelog.read_text())
    released = ".dev" not in wanted
    assert section(after, wanted) == (CHANGES if released else "")
    assert section(after, "Unreleased") == ("" if released else CHANGES)
    pages = {path: texts.get(path, path.read_text()) for path in examples()}
    assert [path for path, text in pages.items() if release.version() in text] == []
    assert (
        f"kind load docker-image gpufence:{wanted} " in pages[PAGES / "get-started/quickstart.md"]
    )
    for name in ("ci/pre-commit.md", "operate/gitops.md"):
        revisions = {match[0] for match in release.REVISION.finditer(pages[PAGES / name])}
        tagged = {each for each in revisions if each.endswith(f": v{wanted}")}
        assert revisions, name
        assert tagged == (revisions if released else set()), name


def test_one_version_is_here_and_what_pages_name_exists() -> None:
    """The number is that of a release or of the next one, and revisions are in the repository."""
    current = release.version()
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (release.chart_version(current), current)
    text = (PROJECT / "CHANGELOG.md").read_text()
    headings = re.findall(r"(?m)^## \[(\d.*)\] - \d{4}-\d\d-\d\d( \(not published\))?$", text)
    assert (".dev" in current) == (current not in dict(headings))
    assert all(Version(current) >= Version(number) for number, _ in headings)
    published = [number for number, note in headings if not note]
    wanted = f"v{published[0]}" if published else release.BRANCH
    pages = "".join(path.read_text() for path in examples())
    revisions = [match[0].split()[-1] for match in release.REVISION.finditer(pages)]
    assert set(revisions) == {wanted}


def test_what_the_documentation_generates_is_not_released(tmp_path: Path) -> None:
    docs = ("index.md", "rules/index.md", "rules/pool-trespass.md", "reference/schemas/policy.json")
    for name in (".gitignore", "pyproject.toml", "deploy/package.md", "LICENSE"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(PROJECT / name, tmp_path / name)
    for name in docs:
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).touch()
    files = SdistBuilder(str(tmp_path)).recurse_included_files()
    released = {file.distribution_path for file in files if file.distribution_path}
    assert {name for name in released if name.startswith("docs/")} == {
        "docs/index.md",
        "docs/rules/index.md",
    }


def test_a_chart_is_packaged_the_same_at_any_time(helm: Helm, tmp_path: Path) -> None:
    epoch = 1_800_000_000
    package(helm, CHART, tmp_path, epoch)
    [archive] = tmp_path.glob("*.tgz")
    with tarfile.open(archive) as files:
        assert {each.mtime for each in files} == {epoch}
    assert int.from_bytes(archive.read_bytes()[4:8], "little") == epoch
    packed, plain = (helm("template", RELEASE, str(each)).stdout for each in (archive, CHART))
    assert packed == plain


def test_chart_and_install_yaml_pull_the_image_by_digest(helm: Helm, tmp_path: Path) -> None:
    image, digest = "registry.example/gpufence", f"sha256:{'0' * 64}"
    package(helm, CHART, tmp_path, 1_800_000_000, image, digest)
    [archive] = tmp_path.glob("*.tgz")
    rendered = helm("template", RELEASE, str(archive)).stdout
    installed = render.install_text(helm, image, digest)
    for text in (rendered, installed):
        assert set(re.findall(r'image: "?([^"\s]+)', text)) == {f"{image}@{digest}"}


def test_the_dockerfile_is_the_same_for_every_platform() -> None:
    text = (PROJECT / "deploy/Dockerfile").read_text()
    assert not re.findall(r"--platform|amd64|arm64|x86_64|aarch64|\bgcc\b|\bapt", text)


def test_pypi_can_show_the_package() -> None:
    """PyPI follows no relative links, and rejects classifiers that it does not know."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    text = (PROJECT / project["readme"]).read_text()
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert len(links) >= 2
    assert [link for link in links if not link.startswith("https://")] == []
    assert set(project["urls"]) == {"Homepage", "Documentation", "Changelog"}
    assert set(project["classifiers"]) <= classifiers


def test_artifact_hub_can_show_the_chart() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    annotations = chart["annotations"]
    # The categories of https://artifacthub.io/docs/topics/annotations/helm/.
    assert annotations["artifacthub.io/category"] == "security"
    assert annotations["artifacthub.io/license"] == "Apache-2.0"
    links = yaml.safe_load(annotations["artifacthub.io/links"])
    assert all(link.keys() == {"name", "url"} for link in links)
    assert chart["home"].startswith("https://")
    assert (CHART / "README.md").exists()


def test_the_image_has_the_labels_that_registries_show() -> None:
    [labels] = [each for each in instructions() if each.startswith("LABEL")]
    names = set(re.findall(r"org\.opencontainers\.image\.(\w+)=", labels))
    workflow = (PROJECT / ".github/workflows/release.yaml").read_text()
    names |= set(re.findall(r"org\.opencontainers\.image\.(\w+)=", workflow))
    wanted = {"title", "description", "version", "licenses", "url", "documentation"}
    assert names == wanted | {"source", "revision"}
    assert f'org.opencontainers.image.version="{release.version()}"' in labels


def instructions() -> list[str]:
    """Return the instructions of the Dockerfile, each on one line."""
    return (PROJECT / "deploy/Dockerfile").read_text().replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("wanted", ["", "v0.2.0", "0.2", "0.2.0-rc.1", "0.2.0-dev.1"])
def test_an_invalid_version_is_rejected(wanted: str) -> None:
    with pytest.raises(ReleaseError, match="is not a version: use X"):
        bump(wanted, TODAY)


def test_a_bump_without_changes_is_rejected(changelog: Path) -> None:
    changelog.write_text("# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-11-21\n\n- All.\n")
    with pytest.raises(ReleaseError, match="nothing under"):
        bump("7.8.9", TODAY)
