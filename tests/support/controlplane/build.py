"""Builds programs into the cache: `python -m controlplane.build [oracle helm ...]`."""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from typing import Any

from controlplane.errors import ControlPlaneError

SOURCES = {
    "controlplane": "controlplane.binaries:binaries",
    "go": "controlplane.binaries:go",
    "oracle": "oracle.cached:binary",
    "testdata": "oracle.cached:testdata",
    "helm": "deploy.chart:binary",
    "kustomize": "deploy.kustomize:binary",
    "promql": "deploy.promql:binary",
    "toolkit": "toolkit.runtime:binary",
    "wheels": "deploy.wheels:environ",
}
"""The function that finds or builds each program."""


def find(name: str) -> Any:
    """Return the path of a program, or of several by their names; build what the cache lacks.

    Raises:
        ControlPlaneError: no Go toolchain is available, or a build failed.
    """
    module, _, function = SOURCES[name].partition(":")
    return getattr(import_module(module), function)()


def main(names: list[str]) -> int:
    """Print the path of each program, by default of the control plane; return the exit code."""
    # Raise an exception, so that a running build stops as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        for name in names or ["controlplane"]:
            found = find(name)
            for program, path in (found if isinstance(found, dict) else {name: found}).items():
                print(f"{program:24} {path}")
    except ControlPlaneError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
