"""Runs the benchmarks for `make bench` and `make bench-compare`."""

from __future__ import annotations

import argparse
import json
import platform
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
    parser.add_argument(
        "--write", action="store_true", help="rewrite the baseline and, of all parts, the page"
    )
    arguments = parser.parse_args()
    try:
        results = measure(tuple(arguments.only or PARTS), arguments.seconds, arguments.rounds)
    except ControlPlaneError as error:
        print(error, file=sys.stderr)
        return 2
    print(report.markdown(results))
    current = ratios(results)
    # Other interpreters have other ratios.
    interpreter = f"Python {platform.python_version().rpartition('.')[0]}"
    baselines = json.loads(BASELINE.read_text())
    baseline = baselines.get(interpreter, {})
    if arguments.write:
        if not arguments.only:
            report.write(results)
        # Rates and latencies depend too much on what else a machine does.
        used = {name: round(ratio, 3) for name, ratio in current.items() if "CPU" in name}
        baselines[interpreter] = {**baseline, **used}
        BASELINE.write_text(json.dumps(baselines, indent=2) + "\n")
        return 0
    if not baseline.keys() & current.keys():
        print(
            f"{BASELINE.name} has no figures of these parts for {interpreter}: run make bench once"
        )
        return 0
    slower = regressions(current, baseline)
    for line in slower:
        print(f"regression: {line}", file=sys.stderr)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
