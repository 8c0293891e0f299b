"""Builds helm, kustomize and Prometheus' parser into the cache: `python -m deploy.build`."""

from __future__ import annotations

import sys


def main() -> int:
    """Print the path of each; return the exit code."""
    from controlplane.errors import ControlPlaneError
    from deploy import chart, kustomize, promql

    try:
        print(f"{'helm':24} {chart.binary()}")
        print(f"{'kustomize':24} {kustomize.binary()}")
        print(f"{'promql':24} {promql.binary()}")
    except ControlPlaneError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
