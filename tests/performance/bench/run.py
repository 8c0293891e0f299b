"""Runs the benchmarks for `make bench` and `make bench-compare`."""

from __future__ import annotations

import argparse
import json
import sys

from bench import report
from bench.results import BASELINE, PARTS, measure, ratios, regressions
from controlplane.errors import ControlPlaneError


def main() -> int:
    """Print the tables; return 1 on a regression, 2 if the benchmarks cannot run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="measure only this part (repeatable)"
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of each load")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each contestant")
    parser.add_argument("--write", action="store_true", help="rewrite the page and the baseline")
    arguments = parser.parse_args()
    if arguments.write and arguments.only:
        parser.error("--write rewrites all results and cannot be combined with --only")
    try:
        results = measure(tuple(arguments.only or PARTS), arguments.seconds, arguments.rounds)
    except ControlPlaneError as error:
        print(error, file=sys.stderr)
        return 2
    print(report.markdown(results))
    current = ratios(results)
    if arguments.write:
        report.write(results)
        BASELINE.write_text(json.dumps(current, indent=2) + "\n")
        return 0
    slower = regressions(current, json.loads(BASELINE.read_text()))
    for line in slower:
        print(f"regression: {line}", file=sys.stderr)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
