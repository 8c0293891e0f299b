"""Faults: edits of one expression each, and a copy of the sources that has one of them."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from paths import PROJECT

PACKAGES = ("policies", "webhook", "certs")
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
_TIMEOUT_SECONDS = 600
"""A fault can make a loop endless."""


class Fault(NamedTuple):
    """One edit: the text between two offsets of a file in bytes, and what replaces it."""

    path: Path
    line: int
    start: int
    end: int
    text: str
    function: int = 0
    """The first line of the outermost function around the edit, with its decorators; or 0."""

    @property
    def source(self) -> bytes:
        """The file with the fault."""
        source = self.path.read_bytes()
        return source[: self.start] + self.text.encode() + source[self.end :]

    @property
    def file(self) -> str:
        return self.path.relative_to(PROJECT).as_posix()

    @property
    def function_name(self) -> str:
        """The name of the outermost function around the edit; empty for a module's own code."""
        lines = self.path.read_text().splitlines()[self.function - 1 :]
        named = re.search(r"def (\w+)", "\n".join(lines))
        return named[1] if self.function and named else ""

    @property
    def statement(self) -> str:
        """The line of the edit, as it is."""
        return self.path.read_text().splitlines()[self.line - 1].strip()

    def describe(self) -> str:
        """Return where the fault is, and what it changes."""
        return f"{self.file}:{self.line}: {self.statement}\n    becomes {self.text}"


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

    for node, function in _walk(ast.parse(source)):
        for (start, end), text in _edits(node, span):
            yield Fault(path, bisect_right(starts, start), start, end, text, function)


def run_with(
    changes: Mapping[str, bytes], command: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """Run a program with a copy of the packages in which some files differ.

    Raises:
        subprocess.TimeoutExpired: the program did not end: a fault can make a loop endless.
    """
    with tempfile.TemporaryDirectory() as copy:
        for package in PACKAGES:
            shutil.copytree(PROJECT / package, Path(copy, package))
        for file, source in changes.items():
            Path(copy, file).write_bytes(source)
        path = [copy, *(each for each in sys.path if each not in ("", str(PROJECT)))]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CI": "true",
        }
        return subprocess.run(
            command,
            # `python -m` imports from here first.
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )


def _walk(node: ast.AST, function: int = 0) -> Iterator[tuple[ast.AST, int]]:
    """Yield each node, and the first line of the outermost function around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.keyword) and child.arg in (
            "frozen",
            "gc",
            "maxsize",
            "slots",
            "strict",
        ):
            # What makes no difference: that nothing changes an object, that no cycle contains it,
            # that it has no dictionary, the size of a cache, and that the sequences of a zip()
            # have the same length.
            continue
        if isinstance(child, ast.Subscript) and ast.unparse(child.value) == "Literal":
            continue
        if isinstance(node, ast.If) and isinstance(child, ast.Continue) and node.body == [child]:
            # The same as a condition that is false.
            continue
        inside = function
        if not inside and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = min([child.lineno, *(each.lineno for each in child.decorator_list)])
        yield child, inside
        yield from _walk(child, inside)


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
        case ast.Tuple(elts=[*names]) | ast.List(elts=[*names]) | ast.Set(elts=[*names]):
            yield from ((span(each), "'~'") for each in names if _is_text(each))
        case ast.Dict(keys=[*names]):
            yield from ((span(each), "'~'") for each in names if each and _is_text(each))
        case ast.Call(func=ast.Name(id=name) as function) if name in _CALLS:
            yield span(function), _CALLS[name]
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield span(value), "None"
        case ast.Continue():
            yield span(node), "pass"
        case ast.If(test=test):
            yield span(test), "False"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
