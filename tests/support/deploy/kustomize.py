"""The real kustomize, built from the pinned Go module in kustomize/ as helm is from its own."""

from __future__ import annotations

from pathlib import Path

from controlplane import cache
from controlplane.gobuild import GoModule

VERSION = "v5.8.1"


def binary() -> Path:
    """Return the path of kustomize, having built it where the cache has none.

    Raises:
        ControlPlaneError: no Go toolchain is available, or the build failed.
    """
    module = GoModule(
        Path(__file__).with_name("kustomize"),
        {"kustomize": "sigs.k8s.io/kustomize/kustomize/v5"},
        "-s -w",
        f"kustomize {VERSION}",
    )
    return module.binaries(["kustomize"], cache.root().with_name("kustomize"))["kustomize"]
