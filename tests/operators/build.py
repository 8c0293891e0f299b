"""The source of an operator from the Go module proxy, and its binary from the cache or a build."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from controlplane import cache, toolchain
from controlplane.errors import ControlPlaneError
from controlplane.gobuild import GoModule
from operators.catalog import Operator

OLDEST_GO = (1, 26, 0)


def source(operator: Operator) -> Path:
    """Return the directory of the module in Go's module cache.

    Raises:
        ControlPlaneError: the module cannot be downloaded, or it is not the pinned one.
    """
    done = subprocess.run(
        [
            toolchain.go(OLDEST_GO),
            *("mod", "download", "-json", f"{operator.module}@{operator.version}"),
        ],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"},
        cwd="/",
    )
    module = json.loads(done.stdout or "{}")
    if done.returncode or "Dir" not in module:
        problem = module.get("Error", done.stderr)
        raise ControlPlaneError(f"{operator.name} {operator.version}: {problem}")
    if module["Sum"] != operator.sum:
        raise ControlPlaneError(
            f"{operator.name} {operator.version}: the module's hash is {module['Sum']}, "
            f"but {operator.sum} is pinned"
        )
    return Path(module["Dir"])


def binary(operator: Operator) -> Path:
    """Return the operator's binary, built from its source if the cache does not have it.

    Raises:
        ControlPlaneError: the build failed.
    """
    what = f"{operator.name} {operator.version}"
    module = GoModule(source(operator), {operator.binary: operator.package}, "-s -w", what)
    root = cache.root().with_name("operators")
    return module.binaries([operator.binary], root)[operator.binary]
