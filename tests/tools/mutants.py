"""Break the engine on purpose, and count the faults that its tests notice: `make mutants`.

Each fault is one edit of one expression in a copy of ``policies/``: another comparison, ``and``
for ``or``, a condition without its ``not``, a number plus one, an early return that is gone. The
tests in tests/unit/policies run against each copy. A fault that no test notices is either
equivalent to the original, or a test is missing. The sample is the same on each run with the same
sources.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from paths import PROJECT

_COMPARISONS = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
_CALLS = {"any": "all", "all": "any", "min": "max", "max": "min"}
_TIMEOUT_SECONDS = 300
"""A fault can make a loop endless. The tests take a minute."""


class Fault(NamedTuple):
    """One edit: the text between two offsets of a file, and what replaces it."""

    path: Path
    line: int
    start: int
    end: int
    text: str


def faults_in(path: Path) -> Iterator[Fault]:
    """Yield every fault that this program can make in a module."""
    source = path.read_text()
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        begins = starts[node.lineno - 1] + node.col_offset
        ends = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        return begins, ends

    for node in ast.walk(ast.parse(source)):
        for (start, end), text in _edits(node, span):
            yield Fault(path, getattr(node, "lineno", 0), start, end, text)


def _edits(
    node: ast.AST, span: Callable[[ast.expr | ast.stmt], tuple[int, int]]
) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield what can be replaced in one node, and its replacement."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            text = f"{ast.unparse(left)} {_COMPARISONS[type(op)]} {ast.unparse(right)}"
            yield span(node), f"({text})"
        case ast.BoolOp(op=op, values=[first, *rest]):
            word = " or " if isinstance(op, ast.And) else " and "
            yield span(node), f"({word.join(f'({ast.unparse(v)})' for v in [first, *rest])})"
            for left_out in range(len(node.values)):
                kept = [v for i, v in enumerate(node.values) if i != left_out]
                word = " and " if isinstance(op, ast.And) else " or "
                yield span(node), f"({word.join(f'({ast.unparse(v)})' for v in kept)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield span(node), f"({ast.unparse(operand)})"
        case ast.Constant(value=bool() as value):
            yield span(node), str(not value)
        case ast.Constant(value=int() as value):
            yield span(node), str(value + 1)
        case ast.Call(func=ast.Name(id=name) as function) if name in _CALLS:
            yield span(function), _CALLS[name]
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield span(value), "None"
        case ast.Continue():
            yield span(node), "pass"
        case ast.If(test=test):
            yield span(test), "False"


def is_noticed(fault: Fault, tests: list[str]) -> bool:
    """Return whether the tests fail with the fault in a copy of the engine."""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(PROJECT / "policies", Path(copy, "policies"))
        changed = Path(copy, fault.path.relative_to(PROJECT))
        source = fault.path.read_bytes()
        changed.write_bytes(source[: fault.start] + fault.text.encode() + source[fault.end :])
        # A compiled module is not used if the source is newer or of another size.
        path = os.pathsep.join([copy, os.environ.get("PYTHONPATH", "")])
        # As a program: `python -m pytest` would import the engine from this directory.
        pytest = str(Path(sys.executable).with_name("pytest"))
        command = [pytest, "-q", "-x", "-p", "no:cacheprovider", *tests]
        environment = os.environ | {
            "PYTHONPATH": path,
            "PYTHONDONTWRITEBYTECODE": "1",
            "CI": "true",
        }
        try:
            result = subprocess.run(
                command,
                cwd=PROJECT,
                env=environment,
                capture_output=True,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return True
        return result.returncode != 0


def main() -> int:
    """Print the faults that no test notices, and how many are noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=[PROJECT / "policies"])
    parser.add_argument("--count", type=int, default=100, help="how many faults to try")
    parser.add_argument("--tests", action="append", help="test paths; default tests/unit/policies")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    modules = sorted(
        module
        for path in options.paths
        for module in (path.resolve().rglob("*.py") if path.is_dir() else [path.resolve()])
    )
    every = [fault for module in modules for fault in faults_in(module)]
    sample = sorted(random.Random(0).sample(every, min(options.count, len(every))))
    tests = options.tests or ["tests/unit/policies"]
    with ThreadPoolExecutor(options.processes) as pool:
        noticed = list(pool.map(lambda fault: is_noticed(fault, tests), sample))
    for fault, found in zip(sample, noticed, strict=True):
        if not found:
            lines = fault.path.read_text().splitlines()
            print(
                f"{fault.path.relative_to(PROJECT)}:{fault.line}: {lines[fault.line - 1].strip()}"
            )
            print(f"    becomes {fault.text}")
    print(f"{sum(noticed)} of {len(sample)} faults noticed, of {len(every)} possible")
    return 0


if __name__ == "__main__":
    sys.exit(main())
