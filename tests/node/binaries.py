"""The programs of a node: kubelet, kube-proxy, containerd, runtimes and a device plugin.

All are built from pinned Go modules, like the control plane. Everything else that a node needs
comes from the distribution.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from controlplane import binaries, cache
from controlplane.errors import ControlPlaneError
from controlplane.gobuild import GoModule
from toolkit import runtime

HERE = Path(__file__).parent
CNI = Path("/usr/lib/cni")
RUNC = "1.3.3"

KUBERNETES = {
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
    "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
    "deviceplugin": "./deviceplugin",
}
CONTAINERD = {
    name: f"github.com/containerd/containerd/v2/cmd/{name}"
    for name in ("containerd", "containerd-shim-runc-v2", "ctr")
}
PACKAGES = {
    "buildah": "buildah",
    "busybox": "busybox-static",
    "conntrack": "conntrack",
    "debootstrap": "debootstrap",
    "gcc": "gcc",
    "ip": "iproute2",
    "iptables": "iptables",
    "pkg-config": "pkg-config",
}
"""The Debian package of each tool that a node needs."""


def require_tools() -> None:
    """Check that this machine can be a node.

    Raises:
        ControlPlaneError: it cannot; the message has the command that installs what is missing.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        raise ControlPlaneError("A node needs Linux and root: run make node as root.")
    missing = [package for tool, package in PACKAGES.items() if shutil.which(tool) is None]
    if not (CNI / "bridge").exists():
        missing.append("containernetworking-plugins")
    if not Path("/usr/include/seccomp.h").exists():
        missing.append("libseccomp-dev")
    if missing:
        raise ControlPlaneError(
            "A node needs tools that are missing. On Debian:\n\n"
            f"  apt install --no-install-recommends {' '.join(sorted(missing))}\n"
        )


def node_binaries() -> dict[str, Path]:
    """Return the path of every program by its name, and build what the cache does not have.

    Raises:
        ControlPlaneError: there is no Go toolchain, or a build failed.
    """
    version = f"kubelet and kube-proxy {binaries.VERSION}"
    kubernetes = GoModule(HERE / "kubernetes", KUBERNETES, binaries.ldflags(), version)
    containerd = GoModule(
        HERE / "containerd", CONTAINERD, "-s -w", "containerd", "no_btrfs,no_devmapper,no_zfs"
    )
    runc = GoModule(
        HERE / "containerd",
        {"runc": "github.com/opencontainers/runc"},
        f"-s -w -X main.version={RUNC}",
        "runc",
        "seccomp",
        cgo=True,
    )
    root = cache.root().with_name("node")
    return {runtime.COMMAND: runtime.binary()} | {
        name: path
        for module in (kubernetes, containerd, runc)
        for name, path in module.binaries(module.packages, root).items()
    }
