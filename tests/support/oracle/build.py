"""Builds the oracle and its fixtures into the cache: `python -m oracle.build`."""

from __future__ import annotations

import sys


def main() -> int:
    """Print the paths of the binary and of the fixtures; return the exit code."""
    from controlplane.errors import ControlPlaneError
    from oracle.cached import binary, testdata

    try:
        paths = {"oracle": binary(), "fixtures": testdata()}
    except ControlPlaneError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    for name, path in paths.items():
        print(f"{name:24} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
