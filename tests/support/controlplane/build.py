"""Builds the control plane's binaries into the cache: `python -m controlplane.build`."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Print the path of every binary; return the exit code."""
    from controlplane.binaries import binaries
    from controlplane.errors import ControlPlaneError

    # Raise an exception, so that a running build stops as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        paths = binaries()
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
