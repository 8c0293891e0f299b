"""Finds the oracle and the official Pod Security fixtures in the cache, or puts them there."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from controlplane import binaries, cache
from controlplane.errors import ControlPlaneError
from controlplane.gobuild import program, run
from oracle import pod_security_fixtures

HERE = Path(__file__).parent


def root() -> Path:
    """Return the oracle's directory in the cache, next to the control plane's."""
    return cache.root().with_name("oracle")


def binary() -> Path:
    """Return the path of the oracle's binary, having built it where the cache has none."""
    return program("oracle", HERE, ".", "the oracle")


def testdata() -> Path:
    """Return a directory with the official fixtures of the newest version of each level.

    They are copied out of the published module into the cache, never into the project.

    Raises:
        ControlPlaneError: no Go toolchain is available, or the download failed.
    """
    name = pod_security_fixtures.MODULE
    target = root() / f"{name.rpartition('/')[2]}-{_pinned(name)}"

    def copy(made: Path) -> None:
        source = _fetch(name) / pod_security_fixtures.TESTDATA
        for level in pod_security_fixtures.LEVELS:
            newest = Path(level) / pod_security_fixtures.latest(source, level)
            # Contents only: files of the module cache are read-only, and would stay so.
            shutil.copytree(source / newest, made / newest, copy_function=shutil.copyfile)

    return cache.filled(target, "fetching the Pod Security fixtures", copy)


def _pinned(name: str) -> str:
    match = re.search(rf"(?m)^\s+{re.escape(name)} (v\S+)$", (HERE / "go.mod").read_text())
    if match is None:
        raise ControlPlaneError(f"{HERE / 'go.mod'} does not require {name}: add it, `go mod tidy`")
    return match[1]


def _fetch(name: str) -> Path:
    """Return the directory of a module of go.mod, downloaded if necessary."""
    return Path(json.loads(run(binaries.go(), HERE, "mod", "download", "-json", name))["Dir"])
