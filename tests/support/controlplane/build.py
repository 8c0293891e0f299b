"""Builds the control plane's binaries into the cache, or finds them: run it as a module."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Print the path of every binary; return the exit code."""
    from controlplane.binaries import binaries
    from controlplane.errors import ControlPlaneError

    # As an exception, so that a running build is stopped, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        found = binaries()
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
