"""Runs the benchmarks for `make bench`."""

from __future__ import annotations

import argparse
import sys

from bench import report
from bench.results import PARTS, measure
from controlplane.errors import ControlPlaneError


def main() -> int:
    """Print the tables; return 2 if the benchmarks cannot run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="measure only this part (repeatable)"
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of each load")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each contestant")
    parser.add_argument("--write", action="store_true", help="rewrite the page")
    arguments = parser.parse_args()
    try:
        results = measure(tuple(arguments.only or PARTS), arguments.seconds, arguments.rounds)
    except ControlPlaneError as error:
        print(error, file=sys.stderr)
        return 2
    print(report.markdown(results))
    if arguments.write:
        report.write(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
