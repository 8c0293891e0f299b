"""Finds the control plane's binaries: $KUBEBUILDER_ASSETS, then the cache, else builds them.

go.mod and go.sum in this directory pin what is built: Kubernetes' own commands, and etcd
in the version that Kubernetes itself requires.
"""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from controlplane import cache, toolchain
from controlplane.gobuild import GoModule

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = Path(__file__).parent
VERSION = "v1.37.2"
PACKAGES = {
    "etcd": "./etcd",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
ENVTEST = frozenset({"etcd", "kube-apiserver", "kubectl"})
"""What a $KUBEBUILDER_ASSETS directory holds (sigs.k8s.io/controller-runtime, setup-envtest)."""


def ldflags(version: str = VERSION) -> str:
    """Return linker flags: no symbol tables, and the version that the binaries report.

    The variables are those that Kubernetes' own build sets (hack/lib/version.sh).
    """
    major, minor, _ = version.removeprefix("v").split(".", 2)
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    settings = [
        f"-X {package}.{name}={value}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for name, value in {**values, "gitCommit": ""}.items()
    ]
    return " ".join(["-s", "-w", *settings])


def module() -> GoModule:
    return GoModule(HERE, PACKAGES, ldflags(), f"the Kubernetes {VERSION} control plane")


def go() -> Path:
    """Return the `go` command that builds the programs."""
    return toolchain.go(module().required_go())


def binaries(environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Return the path of every binary by its name; build those that do not exist.

    Raises:
        ControlPlaneError: no Go toolchain is available, or a build failed.
    """
    provided = from_assets(environ.get("KUBEBUILDER_ASSETS", ""))
    missing = [name for name in PACKAGES if name not in provided]
    return provided | module().binaries(missing, cache.root(environ))


def from_assets(directory: str) -> dict[str, Path]:
    """Return the binaries in a $KUBEBUILDER_ASSETS directory: all of envtest's, or none.

    A complete set is used in any version. A set without scheduler and controller manager must have
    the minor version of those in the cache: Kubernetes supports neither if it is newer than the API
    server (https://kubernetes.io/releases/version-skew-policy/).
    """
    if not directory:
        return {}
    candidates = {name: Path(directory).absolute() / name for name in PACKAGES}
    paths = {name: path for name, path in candidates.items() if os.access(path, os.X_OK)}
    missing = sorted(ENVTEST - paths.keys())
    if missing:
        cache.say(f"KUBEBUILDER_ASSETS={directory} is not used: it has no {', '.join(missing)}")
        return {}
    if paths.keys() == PACKAGES.keys():
        return paths
    version = version_of(paths["kube-apiserver"])
    if minor(version) != minor(VERSION):
        expected = minor(VERSION)
        cache.say(f"KUBEBUILDER_ASSETS={directory} is not used: it is {version}, not a {expected}")
        return {}
    return paths


@functools.cache
def version_of(component: Path) -> str:
    """Return the version of a Kubernetes component, such as "v1.36.3"; "" if it prints none."""
    completed = subprocess.run(
        [component, "--version"], capture_output=True, text=True, check=False
    )
    return completed.stdout.strip().removeprefix("Kubernetes ")


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def is_older(version: str, than: str) -> bool:
    """Return whether a version ("v1.32.13") is older than a minor version ("v1.34")."""
    first, second = (minor(text).removeprefix("v").split(".") for text in (version, than))
    return [int(number) for number in first] < [int(number) for number in second]
