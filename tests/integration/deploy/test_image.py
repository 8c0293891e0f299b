"""What the image is made of, tried without Docker: every step of its build, and what comes out."""

from __future__ import annotations

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

from certs.authority import create_authority, issue_leaf
from certs.files import write_pairs
from certs.keypair import Names
from deploy.chart import Helm, one
from deploy.dockerfile import carry_out, image_environment, stages
from paths import DEPLOY, PROJECT

BUILD, FINAL = stages((DEPLOY / "Dockerfile").read_text())


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, wheels: dict[str, str]) -> Path:
    """What the build stage leaves, in a directory instead of an image."""
    directory = tmp_path_factory.mktemp("image")
    # The wheels are for this interpreter.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    carry_out(BUILD, PROJECT, directory, {**wheels, "PATH": path})
    return directory


def run(image: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run the image's command in what was built, with nothing of this environment."""
    [entrypoint] = [each.exec_form() for each in FINAL if each.word == "ENTRYPOINT"]
    program = image / "opt" / "gpufence" / "bin" / entrypoint[0]
    return subprocess.run(
        [program, *entrypoint[1:], *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={"PATH": os.defpath},
    )


def test_the_wheel_contains_only_the_three_packages(image: Path) -> None:
    [wheel] = (image / "opt" / "wheel").glob("*.whl")
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


def test_installed_libraries_have_the_pinned_versions(image: Path) -> None:
    pins = dict(
        re.findall(r"(?m)^([\w-]+)==([\w.]+)", (PROJECT / "requirements/run.txt").read_text())
    )
    [libraries] = (image / "opt" / "gpufence" / "lib").glob("python3*/site-packages")
    # Names as PyPA's specification normalizes them.
    installed = {
        re.sub(r"[-_.]+", "-", each.name).lower(): each.version
        for each in metadata.distributions(path=[str(libraries)])
    }
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    assert installed.pop("gpufence") == version
    assert installed.items() <= pins.items()
    assert {"aiohttp", "cryptography", "kubernetes", "uvloop"} <= installed.keys()


def test_the_command_prints_its_version_and_checks_manifests(image: Path) -> None:
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    assert run(image, "--version").stdout == f"gpufence {version}\n"
    sample = DEPLOY / "samples" / "web-on-gpu-nodes.yaml"
    output = run(image, "check", str(sample))
    assert output.returncode == 1
    assert "pool-trespass" in output.stdout
    assert run(image, "check", str(DEPLOY / "samples" / "gpu-job.yaml")).returncode == 0


def test_install_yaml_passes_gpufence_check(image: Path) -> None:
    output = run(image, "check", str(DEPLOY / "install.yaml"))
    assert (output.returncode, output.stderr) == (0, "")


def test_the_user_of_the_image_matches_the_chart(helm: Helm) -> None:
    [user] = [each.rest for each in FINAL if each.word == "USER"]
    spec = one(helm.objects({}), "Deployment")["spec"]["template"]["spec"]
    context = spec["securityContext"]
    assert user == f"{context['runAsUser']}:{context['runAsGroup']}"
    assert "command" not in spec["containers"][0]


def test_the_final_stage_copies_only_the_build_result() -> None:
    copies = [each.rest for each in FINAL if each.word == "COPY"]
    assert copies == ["--from=build /opt/gpufence /opt/gpufence"]
    assert BUILD[0].rest.split()[0] == FINAL[0].rest == "${BASE}"


def test_the_base_image_is_pinned_to_a_python_release() -> None:
    [base] = re.findall(r"(?m)^ARG BASE=(.*)$", (DEPLOY / "Dockerfile").read_text())
    assert re.fullmatch(r"python:3\.13\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?", base)


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
    leaf = issue_leaf(authority, Names.parse(["localhost"], []), now)
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
