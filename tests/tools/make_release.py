"""Prepares a release: ``make bump`` sets the version, ``make release`` builds and tries everything.

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
import tomllib
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path

import yaml

import generate
import render
from controlplane.errors import ControlPlaneError
from deploy.chart import Helm, HelmError, binary
from paths import CHART, DEPLOY, PROJECT

DIST = PROJECT / "dist"
CHANGELOG = PROJECT / "CHANGELOG.md"
SUMS = "SHA256SUMS"
PLATFORMS = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
"""The platforms of the image, with the names that wheels have for them."""
GLIBC = ("2014", "_2_28", "_2_34")
"""The manylinux tags that the image's base can install (glibc 2.41)."""
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


def build(helm: Helm, new_version: str, image: str = "") -> None:
    """Build the artifacts of a release into dist/, whose chart and install.yaml pull ``image``.

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
        raise ReleaseError(
            f"CHANGELOG.md has no section [{current}]: run make bump VERSION={current}"
        )
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    (DIST / "release-notes.md").write_text(f"{notes}\n")
    install = (DEPLOY / "install.yaml").read_text()
    (DIST / "install.yaml").write_text(with_image(install, 'image: "{}:', image))
    shutil.copy(CHART / "crds" / "fencepolicies.yaml", DIST)
    for platform, count in wheels().items():
        print(f"{platform}: each of the {count} libraries of the image has a wheel")
    # Archives carry the time of the commit, so that two builds are equal.
    epoch = _run("git", "log", "-1", "--format=%ct").strip()
    environ = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    python = [sys.executable, "-m"]
    _run(*python, "hatchling", "build", "-d", str(DIST), environ=environ)
    helm("lint", "--strict", str(CHART))
    package(helm, CHART, DIST, int(epoch), image)
    with tempfile.TemporaryDirectory() as again:
        compare(DIST, build_again(helm, Path(again), environ, image))
    krew(DIST, current, int(epoch), os.environ.get("GITHUB_REPOSITORY", "example/gpufence"))
    bom = ["--pyproject", "pyproject.toml", "--output-reproducible"]
    _run(
        *(*python, "cyclonedx_py", "requirements", *bom),
        *("-o", str(DIST / f"gpufence-{current}.cdx.json"), "requirements/run.txt"),
    )
    files = sorted(path for path in DIST.iterdir() if path.is_file())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (DIST / SUMS).write_text("".join(sums))


def wheels() -> dict[str, int]:
    """Return for each platform of the image how many pinned libraries have a wheel: all of them.

    Raises:
        ReleaseError: a library has no wheel with a pinned hash for a platform.
    """
    [python] = re.findall(r"(?m)^ARG BASE=python:(3\.\d+)", (DEPLOY / "Dockerfile").read_text())
    options = (
        "--require-hashes",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--python-version",
        python,
    )
    by_name = {}
    for platform, machine in PLATFORMS.items():
        tags = [f"--platform=manylinux{glibc}_{machine}" for glibc in GLIBC]
        pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download")
        with tempfile.TemporaryDirectory() as target:
            _run(*pip, *options, *tags, "-d", target, "-r", "requirements/run.txt")
            by_name[platform] = len(list(Path(target).iterdir()))
    return by_name


def with_image(text: str, field: str, image: str) -> str:
    """Return the text with another repository in each ``field``, or the same without one."""
    before = field.format("gpufence")
    if before not in text:
        raise ReleaseError(f"expected a line with {before!r}")
    return text.replace(before, field.format(image or "gpufence"))


def package(helm: Helm, chart: Path, target: Path, epoch: int, image: str = "") -> None:
    """Package a chart, whose default image is ``image`` if one is given.

    helm writes the current time into the archive; this function replaces it by ``epoch``.
    """
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(shutil.copytree(chart, Path(temporary) / chart.name))
        values = copy / "values.yaml"
        values.write_text(with_image(values.read_text(), "\n  repository: {}\n", image))
        helm("package", str(copy), "--destination", str(target))
    [path] = target.glob("*.tgz")
    plain = io.BytesIO()
    with tarfile.open(path) as packed, tarfile.open(fileobj=plain, mode="w") as written:
        for member in packed:
            member.mtime = epoch
            written.addfile(member, packed.extractfile(member))
    path.write_bytes(gzip.compress(plain.getvalue(), mtime=epoch))


def krew(target: Path, current: str, epoch: int, repository: str) -> None:
    """Write the archive of the kubectl plugin, and the manifest for the index of krew.

    ``repository`` is the owner and the name of the repository at GitHub that releases them.
    """
    script = (DEPLOY / "krew" / "kubectl-gpufence").read_text().replace("@VERSION@", current)
    files = {"kubectl-gpufence": script.encode(), "LICENSE": (PROJECT / "LICENSE").read_bytes()}
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as written:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.mtime, member.mode, member.size = epoch, 0o755, len(content)
            written.addfile(member, io.BytesIO(content))
    archive = target / f"kubectl-gpufence-{current}.tar.gz"
    archive.write_bytes(gzip.compress(plain.getvalue(), mtime=epoch))
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    releases = f"https://github.com/{repository}/releases/download"
    platform = {
        "selector": {
            "matchExpressions": [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]
        },
        "uri": f"{releases}/v{current}/{archive.name}",
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "bin": "kubectl-gpufence",
        "files": [{"from": name, "to": "."} for name in files],
    }
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "gpufence"},
        "spec": {
            "version": f"v{current}",
            "homepage": project["urls"]["Homepage"],
            "shortDescription": "Check GPU workloads and GPU nodes",
            "description": f"{project['description']}.\n",
            "caveats": "The plugin needs uv or pipx.\n",
            "platforms": [platform],
        },
    }
    (target / "krew.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))


def build_again(helm: Helm, directory: Path, environ: Mapping[str, str], image: str) -> Path:
    """Build sdist and chart from the commit, and the wheel from this sdist; return their place."""
    commit, built = directory / "commit", directory / "built"
    _run("git", "archive", f"--output={commit}.tar", "HEAD")
    _extract(commit.with_suffix(".tar"), commit)
    hatchling = (sys.executable, "-m", "hatchling", "build", "-d", str(built), "-t")
    _run(*hatchling, "sdist", cwd=commit, environ=environ)
    [sdist] = built.iterdir()
    _extract(sdist, directory / "sdist")
    [unpacked] = (directory / "sdist").iterdir()
    _run(*hatchling, "wheel", cwd=unpacked, environ=environ)
    epoch = int(environ["SOURCE_DATE_EPOCH"])
    package(helm, commit / CHART.relative_to(PROJECT), built, epoch, image)
    return built


def _extract(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as files:
        files.extractall(target, filter="data")


def compare(built: Path, again: Path) -> None:
    """Compare wheel, sdist and chart with those of another build.

    Raises:
        ReleaseError: they differ.
    """
    for path in sorted(
        file for kind in ("whl", "tar.gz", "tgz") for file in built.glob(f"*.{kind}")
    ):
        if path.read_bytes() != (again / path.name).read_bytes():
            raise ReleaseError(
                f"{path.name} differs from a build of the commit: commit or remove your changes "
                "(git status), or report that the build is not reproducible"
            )


def try_out() -> str:
    """Install the wheel into an empty environment and run it; return its output.

    Raises:
        ReleaseError: a command failed.
    """
    [wheel] = DIST.glob("*.whl")
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        _run(sys.executable, "-m", "venv", str(home / "venv"))
        pip = [str(home / "venv" / "bin" / "pip"), "--quiet", "--disable-pip-version-check"]
        started = datetime.now(UTC)
        _run(*pip, "install", "--require-hashes", "-r", "requirements/run.txt")
        _run(*pip, "install", "--no-deps", str(wheel))
        seconds = (datetime.now(UTC) - started).total_seconds()
        size = sum(path.stat().st_size for path in (home / "venv").rglob("*") if path.is_file())
        gpufence = str(home / "venv" / "bin" / "gpufence")
        output = _run(gpufence, "--version", cwd=home).strip()
        if output != f"gpufence {version()}":
            raise ReleaseError(f"the wheel is {output}, not gpufence {version()}")
        _run(gpufence, "check", str(DEPLOY / "samples" / "gpu-job.yaml"), cwd=home)
        return f"{output}: installed in {seconds:.0f} s, {size / 2**20:.0f} MiB, checks the samples"


def _run(*command: str, cwd: Path = PROJECT, environ: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main(arguments: list[str]) -> int:
    """Run ``bump VERSION`` or ``build [VERSION [IMAGE]]``; return the exit code."""
    command, new_version, image = (*arguments, "", "", "")[:3]
    try:
        if command == "bump":
            for path, text in bump(new_version, datetime.now(UTC).date()).items():
                generate.write(path, text)
            return 0
        with tempfile.TemporaryDirectory() as home:
            build(Helm(binary(), Path(home)), new_version, image)
        print(try_out())
    except (ControlPlaneError, HelmError, ReleaseError) as error:
        print(error, file=sys.stderr)
        return 1
    for path in sorted(DIST.iterdir()):
        print(f"{path.stat().st_size:>10}  {path.relative_to(PROJECT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
