"""Runs the benchmarks: `make bench` and `make bench-compare`."""

from __future__ import annotations

import argparse
import json
import sys

from bench import report
from bench.results import BASELINE, PARTS, fallen, measure, ratios
from controlplane.errors import ControlPlaneError


def main() -> int:
    """Print the tables; return 1 if a ratio has fallen by a fifth, 2 if nothing could be run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=PARTS, help="measure this part")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each load")
    parser.add_argument("--rounds", type=int, default=3, help="of each contestant")
    parser.add_argument("--write", action="store_true", help="rewrite the page and the baseline")
    asked = parser.parse_args()
    if asked.write and asked.only:
        parser.error("--write rewrites everything, and so does not go with --only")
    try:
        found = measure(tuple(asked.only or PARTS), asked.seconds, asked.rounds)
    except ControlPlaneError as error:
        print(error, file=sys.stderr)
        return 2
    print(report.markdown(found))
    made = ratios(found)
    if asked.write:
        report.write(found)
        BASELINE.write_text(json.dumps(made, indent=2) + "\n")
        return 0
    lost = fallen(made, json.loads(BASELINE.read_text()))
    for line in lost:
        print(f"fallen: {line}", file=sys.stderr)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
