"""Prove the fence: `make prove`.

Prints the statements with the number of cases and the time, and then which statement notices each
of the broken variants. It fails if a statement does not hold, or if a variant goes unnoticed.
"""

from __future__ import annotations

import argparse
import sys
import time

from faults import run_with
from proofs.statements import STATEMENTS, RefutedError
from proofs.variants import VARIANTS


def prove(*, small: bool) -> bool:
    """Check the statements until one does not hold, and return whether all hold."""
    for statement in STATEMENTS:
        started = time.process_time()
        try:
            cases = sum(statement.check(small))
        except RefutedError as error:
            print(f"{statement.name}: refuted: {error}", flush=True)
            return False
        seconds = time.process_time() - started
        print(f"{statement.name}: {statement.sentence}", flush=True)
        print(f"    holds for {cases:,} cases ({seconds:.0f} s of CPU time)", flush=True)
    return True


def notices_variants() -> bool:
    """Check the statements with each variant, and return whether none of them holds."""
    unnoticed = 0
    for number, variant in enumerate(VARIANTS, 1):
        command = [sys.executable, "-m", "proofs.prove", "--small", "--without-variants"]
        result = run_with({variant.file: variant.source}, command)
        refuted = next((line for line in result.stdout.splitlines() if ": refuted:" in line), "")
        unnoticed += not refuted
        print(f"variant {number}: {variant.fault}")
        print(f"    {refuted or f'NOT NOTICED: {result.stderr}'}", flush=True)
    return not unnoticed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a part of the cases")
    parser.add_argument("--without-variants", action="store_true")
    options = parser.parse_args()
    holds = prove(small=options.small)
    return 0 if holds and (options.without_variants or notices_variants()) else 1


if __name__ == "__main__":
    sys.exit(main())
