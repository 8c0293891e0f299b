"""Rehearses the release of a commit, offline and twice, and checks what reviewers require.

``make release-review`` prints each gate with its evidence, and fails if one fails. The image is
built on the Python of this machine; .github/workflows/release.yaml builds it on that of the
Dockerfile.
"""

from __future__ import annotations

import filecmp
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml

from deploy import wheels
from deploy.chart import RELEASE, Helm, binary
from deploy.dockerfile import Instruction, carry_out, image_python, run_image, stages
from deploy.root import SBOM
from make_release import DIST, SUMS, version
from paths import PROJECT

NAME = "registry.example/gpufence"
GATES = Path(__file__).with_name("release_gates.yaml")
FORBIDDEN = {"sh", "bash", "dash", "busybox", "apt", "apt-get", "dpkg", "apk", "pip", "pip3"}
"""Programs that the image does not have."""


@dataclass(frozen=True)
class Rehearsal:
    """What one rehearsal leaves."""

    version: str
    dist: Path
    root: Path
    digest: str


def rehearse(home: Path, released: str, epoch: int) -> Rehearsal:
    """Build the release of the commit: image, then chart and install.yaml with its digest."""
    source = home / "source"
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=PROJECT, stdout=-1, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(source, filter="data")
    below = ("", "tests", "tests/support", "tests/properties", "tests/performance", "tests/tools")
    path = os.pathsep.join(str(source / part) for part in below)
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONPATH": path}

    def run(*command: str) -> None:
        # Its own output is for make release.
        subprocess.run(
            [sys.executable, "-m", *command], cwd=source, env=environ, stdout=-1, check=True
        )

    if version() != released:
        run("make_release", "bump", released)
        run("render")
    build, final = stages((source / "deploy/Dockerfile").read_text())
    built = home / "image"
    built.mkdir()
    python = image_python(home / "python")
    settings = {"SOURCE_DATE_EPOCH": str(epoch), "PIP_QUIET": "1"}
    carry_out(build, source, built, {**wheels.environ(), **python, **settings}, compiled=True)
    root = built / "opt" / "root"
    digest = write_layer(root, final, home / "layer.tar.gz", epoch)
    run("make_release", "build", released, NAME, digest)
    return Rehearsal(released, source / DIST.relative_to(PROJECT), root, digest)


def write_layer(root: Path, stage: list[Instruction], target: Path, epoch: int) -> str:
    """Write the only layer of an image, and return a digest of it and of the stage's settings."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as layer:
        for path in sorted(root.rglob("*")):
            member = layer.gettarinfo(path, str(path.relative_to(root)))
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            with path.open("rb") if member.isfile() else io.BytesIO() as source:
                layer.addfile(member, source)
    packed = gzip.compress(plain.getvalue(), 1, mtime=0)
    target.write_bytes(packed)
    return sha256(packed + repr([(each.word, each.rest) for each in stage]).encode())


def sha256(content: bytes) -> str:
    """Return a digest as registries write it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


# Each gate returns its evidence, or raises an AssertionError with what is wrong.


def same_bytes(one: Rehearsal, other: Rehearsal) -> str:
    """Compare two rehearsals."""
    names = sorted(path.name for path in one.dist.iterdir())
    _, differ, lacking = filecmp.cmpfiles(one.dist, other.dist, names, shallow=False)
    assert not differ + lacking, f"differ: {differ + lacking}"
    assert one.digest == other.digest, f"image: {one.digest} and {other.digest}"
    sums = sha256((one.dist / SUMS).read_bytes())
    return f"{len(names)} files and the image are equal; SHA256SUMS is {sums}"


def pulled_by_digest(one: Rehearsal, helm: Helm) -> str:
    """Check which image chart and install.yaml run."""
    [chart] = one.dist.glob("gpufence-*.tgz")
    texts = helm("template", RELEASE, str(chart)).stdout, (one.dist / "install.yaml").read_text()
    images = {image for text in texts for image in re.findall(r'image: "?([^"\s]+)', text)}
    assert images == {f"{NAME}@{one.digest}"}, f"they run {images}"
    return f"{images.pop()}"


def no_shell(one: Rehearsal) -> str:
    """Check what is in the image, and that gpufence runs in it."""
    files = [path for path in one.root.rglob("*") if path.is_symlink() or not path.is_dir()]
    found = FORBIDDEN & {path.name for path in files}
    assert not found, found
    output = run_image(one.root, "--version").stdout.strip()
    assert output == f"gpufence {one.version}", output
    size = sum(path.lstat().st_size for path in files) / 2**20
    packed = (one.root.parents[2] / "layer.tar.gz").stat().st_size / 2**20
    return f"{output} runs; {len(files)} files, {size:.0f} MiB, {packed:.0f} MiB to pull"


def contents(one: Rehearsal) -> str:
    """Check that the SBOMs list every pinned library, and that licenses are in the image."""
    [listed] = (json.loads(path.read_text()) for path in one.dist.glob("*.cdx.json"))
    inside = json.loads((one.root / SBOM).read_text())["components"]
    of_wheel, of_image = (
        {each["purl"].lower().replace("_", "-") for each in components}
        for components in (listed["components"], inside)
    )
    python = {each for each in of_image if each.startswith("pkg:pypi/")}
    assert python <= of_wheel, f"not in the SBOM of the wheel: {python - of_wheel}"
    licenses = [
        *one.root.rglob("*.dist-info/**/*LICEN*"),
        *one.root.glob("usr/share/doc/*/copyright"),
    ]
    return f"{len(of_image)} parts in the image, with {len(licenses)} files of licenses"


def pinned() -> str:
    """Check that libraries are pinned by hash, and actions by commit."""
    lines = [
        line
        for path in PROJECT.glob("requirements/*.txt")
        for line in path.read_text().replace("\\\n", "").splitlines()
        if "==" in line
    ]
    loose = [line for line in lines if "--hash=" not in line]
    uses = [
        name
        for path in PROJECT.glob(".github/workflows/*.yaml")
        for name in re.findall(r"uses: (\S+)", path.read_text())
    ]
    loose += [each for each in uses if not re.search(r"@[0-9a-f]{40}$", each)]
    assert not loose, loose
    return f"{len(lines)} libraries by hash, {len(uses)} actions by commit"


def attested() -> str:
    """Check the order of the workflow, and that what it publishes is attested."""
    jobs = yaml.safe_load((PROJECT / ".github/workflows/release.yaml").read_text())["jobs"]
    needs = {name: job.get("needs", []) for name, job in jobs.items()}
    assert needs["build"] == "image", f"build needs {needs['build']}"
    assert needs["chart"] == "build", f"chart needs {needs['chart']}"
    with_proof = [
        name
        for name, job in jobs.items()
        if any("actions/attest" in step.get("uses", "") for step in job["steps"])
    ]
    assert with_proof == ["image", "chart", "publish"], f"attested: {with_proof}"
    return "image, then build with its digest, then chart; image, chart and checksums are attested"


def no_binaries() -> str:
    """Check that Git has no programs."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, stdout=-1, check=True).stdout
    files = [PROJECT / name for name in names.decode().split("\0") if name]
    heads = {path: path.read_bytes()[:4] for path in files if path.is_file()}
    programs = [path.name for path, head in heads.items() if head in {b"\x7fELF", b"MZ\x90\x00"}]
    assert not programs, programs
    return f"{len(heads)} files, none a program"


def checkout_gates() -> dict[str, Callable[[], str]]:
    """Return the gates that need no build."""
    rows = yaml.safe_load(GATES.read_text())["files"]
    return {
        "OSPS-BR-05.01 pinned": pinned,
        "attestations in order": attested,
        "OSPS-QA-05.01 no programs in Git": no_binaries,
        **{row["gate"]: partial(says, row["file"], row["says"]) for row in rows},
    }


def main() -> int:
    """Rehearse twice, print the gates, and return the exit code."""
    released = re.sub(r"\.dev\d+$", "", version())
    git = ["git", "log", "-1", "--format=%ct"]
    epoch = int(subprocess.run(git, cwd=PROJECT, stdout=-1, check=True).stdout)
    failed = 0

    def show(gate: str, check: Callable[[], str]) -> None:
        nonlocal failed
        try:
            print(f"pass    {gate}: {check()}")
        except AssertionError as error:
            failed += 1
            print(f"FAIL    {gate}: {error}")

    with tempfile.TemporaryDirectory() as temporary:
        homes = [Path(temporary, name) for name in ("one", "other")]
        one, other = (rehearse(home, released, epoch) for home in homes)
        helm = Helm(binary(), Path(temporary, "helm"))
        for path in sorted(one.dist.iterdir()):
            print(f"{path.stat().st_size:>10}  {path.name}")
        print(f"{'image':>10}  {one.digest}")
        show("reproducible", lambda: same_bytes(one, other))
        show("chart and install.yaml pull the image by digest", lambda: pulled_by_digest(one, helm))
        show("image without shell, package manager and pip", lambda: no_shell(one))
        show("SBOM and licenses", lambda: contents(one))
        for gate, check in checkout_gates().items():
            show(gate, check)
    for gate in yaml.safe_load(GATES.read_text())["people"]:
        print(f"person  {gate}")
    return 1 if failed else 0


def says(pattern: str, expression: str) -> str:
    """Return the files that meet a gate."""
    files = sorted(path for path in PROJECT.glob(pattern) if path.is_file())
    found = [path for path in files if re.search(expression, path.read_text())]
    everywhere = pattern.startswith(".github/workflows/*")
    assert found, f"no file {pattern} has {expression}"
    assert not everywhere or found == files, f"{set(files) - set(found)} have no {expression}"
    return ", ".join(str(path.relative_to(PROJECT)) for path in found)


if __name__ == "__main__":
    sys.exit(main())
