"""Finds the Go programs of the benchmarks in the cache, or builds them."""

from __future__ import annotations

from pathlib import Path

from controlplane import cache
from controlplane.gobuild import GoModule

PACKAGES = {"webhook": "./webhook", "load": "./load"}


def binaries() -> dict[str, Path]:
    """Return the paths of the peer webhook and of the load generator.

    Raises:
        ControlPlaneError: no Go toolchain is available, or the build failed.
    """
    directory = Path(__file__).with_name("peers")
    module = GoModule(directory, PACKAGES, ldflags="-s -w", what="the benchmarks' peers")
    return module.binaries(PACKAGES, cache.root().with_name("bench"))
