"""The real kustomize, built from the pinned Go module in kustomize/ as helm is from its own."""

from __future__ import annotations

from pathlib import Path

from controlplane.gobuild import program

VERSION = "v5.8.1"


def binary() -> Path:
    """Return the path of kustomize, having built it where the cache has none."""
    directory = Path(__file__).with_name("kustomize")
    package = "sigs.k8s.io/kustomize/kustomize/v5"
    return program("kustomize", directory, package, f"kustomize {VERSION}")
