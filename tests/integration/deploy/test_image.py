"""What the image is made of, tried without Docker: every step of its build, and what comes out."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import pytest

from certificates import write_pairs
from certs.authority import create_authority, issue_leaf
from deploy.chart import Helm, one
from deploy.dockerfile import carry_out, image_environment, image_python, run_image, stages
from deploy.root import SBOM
from paths import DEPLOY, PROJECT

BUILD, FINAL = stages((DEPLOY / "Dockerfile").read_text())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, wheels: dict[str, str]) -> Path:
    """What the build stage leaves, in a directory instead of an image."""
    if not (shutil.which("ldd") and shutil.which("dpkg-query")):
        pytest.skip("the image is made of the packages of a Debian")
    directory = tmp_path_factory.mktemp("image")
    carry_out(BUILD, PROJECT, directory, {**wheels, **image_python(directory / "path")})
    return directory / "opt"


@pytest.fixture
def image(built: Path) -> Path:
    """The root of the image."""
    return built / "root"


def libraries(image: Path) -> dict[str, metadata.Distribution]:
    """Return what pip installed into the image, under the names that PyPA's rules normalize."""
    [packages] = [path.parent for path in image.rglob("*-packages/aiohttp")]
    installed = metadata.distributions(path=[str(packages)])
    return {re.sub(r"[-_.]+", "-", each.name).lower(): each for each in installed}


def test_the_wheel_contains_only_the_three_packages(built: Path) -> None:
    [wheel] = (built / "wheel").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    folders = {name.partition("/")[0] for name in names}
    assert {each for each in folders if not each.endswith(".dist-info")} == {
        "policies",
        "webhook",
        "certs",
    }
    data = {name for name in names if not name.endswith(".py") and ".dist-info/" not in name}
    assert data >= {"policies/default.yaml", "policies/py.typed"}
    assert not [name for name in names if "__pycache__" in name]


def test_the_sbom_lists_pinned_libraries_and_their_licenses_are_in_the_image(image: Path) -> None:
    pins = dict(
        re.findall(r"(?m)^([\w-]+)==([\w.]+)", (PROJECT / "requirements/run.txt").read_text())
    )
    installed = libraries(image)
    versions = {name: each.version for name, each in installed.items()}
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    assert versions.pop("gpufence") == version
    assert versions.items() <= pins.items()
    assert {"aiohttp", "cryptography", "kubernetes", "uvloop"} <= versions.keys()
    listed: dict[str, set[str]] = {}
    for component in json.loads((image / SBOM).read_text())["components"]:
        kind, name, _ = re.split(
            r"[/@]", component["purl"].replace("deb/debian", "deb"), maxsplit=2
        )
        listed.setdefault(kind, set()).add(re.sub(r"[-_.]+", "-", name) if "pypi" in kind else name)
    assert listed["pkg:pypi"] == installed.keys()
    assert listed["pkg:generic"] == {"python"}
    licenses = {
        name for name, each in installed.items() if re.search(r"(?i)licen[cs]e", str(each.files))
    }
    assert licenses == installed.keys()
    documents = {path.parent.name for path in image.glob("usr/share/doc/*/copyright")}
    # Scanners look for known faults in the packages of these files.
    states = {path.name for path in image.glob("var/lib/dpkg/status.d/*")}
    assert listed.get("pkg:deb", set()) == documents == states


def test_the_image_has_no_shell_no_package_manager_and_no_pip(image: Path) -> None:
    names = {path.name for path in image.rglob("*") if not path.is_dir()}
    shells = {"sh", "bash", "dash", "busybox", "env", "activate"}
    managers = {"apt", "apt-get", "dpkg", "apk", "pip", "pip3", "ensurepip", "easy_install"}
    assert names & (shells | managers) == set()
    # Programs that the kernel starts without another: only Python. Libraries are not executable.
    elves = [
        path
        for path in image.rglob("bin/*")
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"
    ]
    assert [path.name for path in elves] == [Path(sys.base_prefix, "bin/python3").name]


def test_gpufence_runs_in_the_image(image: Path) -> None:
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    done = run_image(image, "--version")
    assert (done.stdout, done.stderr) == (f"gpufence {version}\n", "")
    codes = {
        path: run_image(image, "check", "-", stdin=(DEPLOY / path).read_text()).returncode
        for path in ("samples/web-on-gpu-nodes.yaml", "samples/gpu-job.yaml", "install.yaml")
    }
    assert list(codes.values()) == [1, 0, 0]
    # Both processes of a cluster load all that they need before they reach it.
    for command in ("serve", "controller"):
        assert run_image(image, command, "--help").returncode == 0


def test_the_final_stage_begins_from_nothing_and_has_the_user_of_the_chart(helm: Helm) -> None:
    rests = {each.word: each.rest for each in FINAL}
    assert (rests["FROM"], rests["COPY"]) == ("scratch", "--from=build /opt/root /")
    assert [each.word for each in FINAL if each.word in {"COPY", "ADD", "RUN"}] == ["COPY"]
    assert BUILD[0].rest.split()[0] == "${BASE}"
    spec = one(helm.objects({}), "Deployment")["spec"]["template"]["spec"]
    context = spec["securityContext"]
    assert rests["USER"] == f"{context['runAsUser']}:{context['runAsGroup']}"
    assert "command" not in spec["containers"][0]


def test_the_base_image_is_pinned_to_a_python_release() -> None:
    [base] = re.findall(r"(?m)^ARG BASE=(.*)$", (DEPLOY / "Dockerfile").read_text())
    assert re.fullmatch(r"python:3\.13\.\d+-slim-[a-z]+@sha256:[0-9a-f]{64}", base)


def test_the_build_context_contains_exactly_the_copied_files() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert "*" in ignored
    sources = [
        source.rstrip("/")
        for each in BUILD
        if each.word == "COPY"
        for source in each.rest.split()[:-1]
    ]
    assert set(sources) == {line[1:] for line in ignored if line.startswith("!")}


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl hashes the authority's name")
def test_the_image_trusts_system_cas_without_loading_the_whole_bundle(tmp_path: Path) -> None:
    """OpenSSL finds a CA in the directory by its hash when it verifies a certificate."""
    now = datetime.now(UTC)
    authority = create_authority(now)
    leaf = issue_leaf(authority, ["localhost"], now)
    write_pairs(tmp_path, authority, leaf)
    subprocess.run(["openssl", "rehash", tmp_path], check=True)
    handshake = """
import ssl, sys
trusting = ssl.create_default_context()
print("holds", len(trusting.get_ca_certs()))
serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
serving.load_cert_chain(f"{sys.argv[1]}/tls.crt", f"{sys.argv[1]}/tls.key")
one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
server = serving.wrap_bio(one, other, server_side=True)
client = trusting.wrap_bio(other, one, server_hostname="localhost")
for side in (client, server, client):
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        pass
print("trusts", client.getpeercert()["subjectAltName"])
"""
    output = subprocess.run(
        [sys.executable, "-c", handshake, tmp_path],
        env=os.environ | image_environment() | {"SSL_CERT_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert output.stdout.splitlines() == ["holds 0", "trusts (('DNS', 'localhost'),)"]
