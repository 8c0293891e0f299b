"""Prepares a release: ``make bump`` sets the version, ``make release`` builds what is published.

What a release needs beyond that are credentials: .github/workflows/release.yaml has them.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path

import generate
import render
from controlplane.errors import ControlPlaneError
from deploy.chart import Helm, HelmError, binary
from deploy.root import component, document
from paths import CHART, DEPLOY, PROJECT

DIST = PROJECT / "dist"
CHANGELOG = PROJECT / "CHANGELOG.md"
SUMS = "SHA256SUMS"
UNRELEASED = "## [Unreleased]\n"
VERSION = r"\d+\.\d+\.\d+(\.dev\d+)?"
"""A release, or ``.dev`` and a number between releases: of the release that comes next."""
REVISION = re.compile(r"(?m)^( *(?:targetRevision|rev): )\S+$")
"""The revisions that pages name: the last release, or the branch until there is one."""
BRANCH = "main"


class ReleaseError(Exception):
    """The release failed; the message states the reason and the remediation."""


def version() -> str:
    """Return the version of the project."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    current: str = project["version"]
    return current


def chart_version(project_version: str) -> str:
    """Return a version of Python as Helm writes it (Semantic Versioning)."""
    return project_version.replace(".dev", "-dev.")


def bump(new_version: str, today: date) -> dict[Path, str]:
    """Return the files that hold the version with their new text.

    Raises:
        ReleaseError: it is not a version, or the changelog has nothing to release.
    """
    if not re.fullmatch(VERSION, new_version):
        raise ReleaseError(
            f"{new_version!r} is not a version: use X.Y.Z, or X.Y.Z.dev0 after a release"
        )
    released = ".dev" not in new_version
    texts = {}
    if released:
        changelog = CHANGELOG.read_text()
        if not section(changelog, "Unreleased"):
            raise ReleaseError("CHANGELOG.md has nothing under [Unreleased]: add the changes first")
        heading = f"{UNRELEASED}\n## [{new_version}] - {today}\n"
        texts[CHANGELOG] = changelog.replace(UNRELEASED, heading)
    edits = {
        PROJECT / "pyproject.toml": (r'(?m)^version = ".*"$', f'version = "{new_version}"'),
        CHART / "Chart.yaml": (
            r'(?m)^version: .*\nappVersion: ".*"$',
            f'version: {chart_version(new_version)}\nappVersion: "{new_version}"',
        ),
    }
    for path, (pattern, replacement) in edits.items():
        texts[path], count = re.subn(pattern, replacement, path.read_text())
        if count != 1:
            raise ReleaseError(f"{path.relative_to(PROJECT)} does not have one version")
    current = re.compile(rf"(?<![\dv.]){re.escape(version())}(?!\.?\d)")
    for path in examples():
        text = path.read_text()
        new = current.sub(new_version, text)
        if released:
            new = REVISION.sub(rf"\g<1>v{new_version}", new)
        if new != text:
            texts[path] = new
    return texts


def examples() -> list[Path]:
    """Return the files whose examples name the current version: images, tags and revisions."""
    pages = (PROJECT / "docs").rglob("*.md")
    history = {"decisions", "changelog.md", "upgrade.md"}
    return [
        DEPLOY / "Dockerfile",
        PROJECT / "README.md",
        *sorted(path for path in pages if not history & set(path.parts)),
    ]


def section(changelog: str, name: str) -> str:
    """Return the text below the heading ``## [name]``, without the heading."""
    match = re.search(rf"(?ms)^## \[{re.escape(name)}\][^\n]*\n(.*?)(?=^## |\Z)", changelog)
    return match[1].strip() if match else ""


def build(helm: Helm, new_version: str, image: str = "", digest: str = "") -> None:
    """Build the artifacts of a release into dist/; chart and install.yaml pull this image.

    Raises:
        ReleaseError: the project is not ready for this version, or a command failed.
    """
    current = version()
    if new_version not in {"", current}:
        raise ReleaseError(f"the version is {current}, not {new_version}: run make bump first")
    if render.INSTALL.read_text() != render.install_text(helm):
        raise ReleaseError("deploy/install.yaml is stale: run make render")
    notes = section(CHANGELOG.read_text(), current)
    if not notes:
        raise ReleaseError(f"CHANGELOG.md has no section [{current}]: run make bump VERSION=X.Y.Z")
    # Archives carry the time of the commit, so that two builds are equal.
    epoch = commit_time()
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    (DIST / "release-notes.md").write_text(f"{notes}\n")
    (DIST / "install.yaml").write_text(render.install_text(helm, image, digest))
    shutil.copy(CHART / "crds" / "fencepolicies.yaml", DIST)
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    hatchling = (sys.executable, "-m", "hatchling", "build", "-d", str(DIST), "-t")
    _run(*hatchling, "sdist", environ=environ)
    with tempfile.TemporaryDirectory() as unpacked:
        [sdist] = DIST.glob("*.tar.gz")
        with tarfile.open(sdist) as archive:
            archive.extractall(unpacked, filter="data")
        _run(*hatchling, "wheel", cwd=next(Path(unpacked).iterdir()), environ=environ)
    helm("lint", "--strict", str(CHART))
    package(helm, CHART, DIST, epoch, image, digest)
    pins = re.findall(r"(?m)^([\w-]+)==([\w.]+)", (PROJECT / "requirements/run.txt").read_text())
    libraries = [component("pypi", *pin) for pin in [("gpufence", current), *pins]]
    (DIST / f"gpufence-{current}.cdx.json").write_text(document(libraries))
    files = sorted(path for path in DIST.iterdir() if path.is_file())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (DIST / SUMS).write_text("".join(sums))


def commit_time() -> int:
    """Return the time of the commit, or that of SOURCE_DATE_EPOCH where there is no repository.

    Raises:
        ReleaseError: files differ from the commit.
    """
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(epoch)
    if changed := _run("git", "status", "--porcelain"):
        raise ReleaseError(f"files differ from the commit: commit or remove them\n{changed}")
    return int(_run("git", "log", "-1", "--format=%ct"))


def package(
    helm: Helm, chart: Path, target: Path, epoch: int, image: str = "", digest: str = ""
) -> None:
    """Package a chart, whose default image is ``image`` if one is given.

    helm writes the current time into the archive; this function replaces it by ``epoch``.
    """
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(shutil.copytree(chart, Path(temporary) / chart.name))
        values = copy / "values.yaml"
        text = values.read_text()
        for field, own, new in (("repository", "gpufence", image), ("digest", '""', digest)):
            line = f"\n  {field}: {own}\n"
            if line not in text:
                raise ReleaseError(f"{chart.name}/values.yaml has no line {line.strip()!r}")
            text = text.replace(line, f"\n  {field}: {new or own}\n", 1)
        values.write_text(text)
        helm("package", str(copy), "--destination", str(target))
    [path] = target.glob("*.tgz")
    plain = io.BytesIO()
    with tarfile.open(path) as packed, tarfile.open(fileobj=plain, mode="w") as written:
        for member in packed:
            member.mtime = epoch
            written.addfile(member, packed.extractfile(member))
    path.write_bytes(gzip.compress(plain.getvalue(), mtime=epoch))


def _run(*command: str, cwd: Path = PROJECT, environ: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main(arguments: list[str]) -> int:
    """Run ``bump VERSION`` or ``build [VERSION [IMAGE [DIGEST]]]``; return the exit code."""
    command, new_version, image, digest = (*arguments, "", "", "", "")[:4]
    try:
        if command == "bump":
            epoch = float(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
            for path, text in bump(new_version, datetime.fromtimestamp(epoch, UTC).date()).items():
                generate.write(path, text)
            return 0
        with tempfile.TemporaryDirectory() as home:
            build(Helm(binary(), Path(home)), new_version, image, digest)
    except (ControlPlaneError, HelmError, ReleaseError) as error:
        print(error, file=sys.stderr)
        return 1
    for path in sorted(DIST.iterdir()):
        print(f"{path.stat().st_size:>10}  {path.relative_to(PROJECT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
