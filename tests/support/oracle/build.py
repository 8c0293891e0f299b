"""Builds the oracle into the cache, or finds it there, with its fixtures: run me as a file."""

from __future__ import annotations

import sys


def main() -> int:
    """Print the paths of the binary and of the fixtures; return the exit code."""
    from controlplane.errors import ControlPlaneError
    from oracle.cached import binary, testdata

    try:
        found = {"oracle": binary(), "fixtures": testdata()}
    except ControlPlaneError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    for name, path in found.items():
        print(f"{name:24} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
