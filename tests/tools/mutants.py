"""Break the sources on purpose, and list the faults that no test notices: `make mutants`.

Each fault is one edit of one expression: another comparison, ``and`` for ``or``, a condition
without its ``not``, a number plus one, another name in a list, an early return that is gone. A
fault that no test notices is equivalent to the original, or a test is missing, or the code is
unnecessary. ``equivalent_faults.yaml`` has the equivalent ones with the reason. The program fails
if it finds another one, or if an entry of the file is about no fault.

A session of pytest collects the tests once. A child process runs them, and notes for each test its
time and the functions that it calls. Then each fault has a child process of its own: it replaces
the code of the function, and runs the tests that call it until one fails: first those that noticed
the faults before it, and then the quickest. For a fault outside of functions, it gives
the module its new values. If no test notices these, pytest starts again on a copy of the sources.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import zip_longest
from mmap import mmap
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

import msgspec
import pytest
from _pytest.runner import runtestprotocol

from faults import Fault, faults_in, run_with
from paths import PROJECT
from webhook.documents.files import load_documents

EQUIVALENT = Path(__file__).with_name("equivalent_faults.yaml")
_ENGINE = (
    *("reach.py", "candidates.py", "exemptions.py", "requests.py", "kubernetes/scheduling.py"),
    *("pool_nodes.py", "vocabulary.py"),
)
DEFAULT_PATHS = [*(PROJECT / "policies" / name for name in _ENGINE), PROJECT / "policies/rules"]
_TESTS = ("tests/unit/policies",)
_SLOWEST_TEST_SECONDS = 10.0
"""Slower tests start programs, and run for no fault."""
_MEMORY_BYTES = 4 << 30
_FAILED, _PASSED = 1, 0
_CACHED_FUNCTION = type(cache(faults_in))


class Equivalent(NamedTuple):
    """A fault after which the code does the same, and why."""

    file: str
    function: str
    statement: str
    becomes: str
    reason: str

    def is_about(self, fault: Fault) -> bool:
        return (
            self.file == fault.file
            and self.becomes == fault.text
            and self.statement == fault.statement
            and self.function == fault.function_name
        )


def equivalents() -> list[Equivalent]:
    """Return the faults that the file lists."""
    return [
        Equivalent(file, function, statement, becomes, entry["reason"])
        for document in load_documents(str(EQUIVALENT))
        for entry in document.value
        for place, statements in entry["faults"].items()
        for file, function in [place.split()]
        for statement, each in statements.items()
        for becomes in map(str, each)
    ]


class Observed(msgspec.Struct):
    """What a test without a fault took, and the first lines of the functions that it called."""

    seconds: float
    called: dict[str, list[int]]


class MutationRun:
    """A pytest plugin that runs the collected tests against each fault."""

    def __init__(self, faults: Sequence[Fault], processes: int) -> None:
        self._faults = faults
        self._processes = processes
        self.unnoticed: list[Fault] = []
        self.for_import: list[Fault] = []
        self._failed = memoryview(mmap(-1, 8 * len(faults) + 8)).cast("q")
        """By the fault's number, one more than the index of the test that failed; or 0. Shared."""
        self._replaceable: list[Any] = []
        """The functions, and the caches of functions, of the process."""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        assert reporter is not None
        observed = self._observe(session.items)
        reporter.write_line(f"{len(session.items)} tests, {len(self._faults)} faults")
        order = sorted(observed, key=lambda index: observed[index].seconds)
        running: dict[int, int] = {}
        pending = list(reversed(range(len(self._faults))))
        # Before the processes start: each of them would take longer than most tests. What exists
        # now stays out of their garbage collection, and is not copied.
        gc.unfreeze()
        self._replaceable = [
            each for each in gc.get_objects() if isinstance(each, FunctionType | _CACHED_FUNCTION)
        ]
        gc.freeze()
        while pending or running:
            while pending and len(running) < self._processes:
                number = pending.pop()
                fault = self._faults[number]
                tests = [
                    index
                    for index in order
                    if (called := observed[index].called.get(str(fault.path)))
                    if fault.function in (0, *called)
                ]
                if not tests:
                    self.for_import.append(fault)
                    continue
                seconds = sum(observed[index].seconds for index in tests)
                run = partial(self._run, number, {i: session.items[i] for i in tests}, seconds)
                running[_fork(run)] = number
            if running:
                child, status = os.wait()
                number = running.pop(child)
                fault = self._faults[number]
                if os.waitstatus_to_exitcode(status) == _PASSED:
                    if fault.function:
                        reporter.write_line(fault.describe())
                    (self.unnoticed if fault.function else self.for_import).append(fault)
                elif failed := self._failed[number]:
                    order.remove(failed - 1)
                    order.insert(0, failed - 1)
        return True

    def _run(self, number: int, tests: dict[int, pytest.Item], seconds: float) -> int:
        """Run the tests with a fault; ``seconds`` is their CPU time without it, and traced."""
        # A fault can make a loop endless, and the loop can fill a list. The limit is on CPU time:
        # a busy machine makes no fault noticed.
        for kind, limit in (
            (resource.RLIMIT_CPU, 10 + int(3 * seconds)),
            (resource.RLIMIT_AS, _MEMORY_BYTES),
        ):
            resource.setrlimit(kind, (limit, limit))
        fault = self._faults[number]
        if fault.function:
            self._replace_code(fault)
        elif not _replace_values(fault):
            return _PASSED
        for (index, item), following in zip_longest(tests.items(), list(tests.values())[1:]):
            if _fails(item, following):
                self._failed[number] = index + 1
                return _FAILED
        return _PASSED

    def _replace_code(self, fault: Fault) -> None:
        """Give the functions of the module the code that they have with the fault."""
        path = str(fault.path)
        codes = dict(_codes(compile(fault.source, path, "exec")))
        for each in self._replaceable:
            if not isinstance(each, FunctionType):
                each.cache_clear()
            elif each.__code__.co_filename == path:
                each.__code__ = codes.get(each.__code__.co_qualname, each.__code__)

    def _observe(self, items: Sequence[pytest.Item]) -> dict[int, Observed]:
        """Return the tests that pass in time, by their index."""
        files = {str(fault.path) for fault in self._faults}
        with tempfile.NamedTemporaryFile() as answer:

            def write() -> int:
                observed = dict(_observed(items, files))
                Path(answer.name).write_bytes(msgspec.json.encode(observed))
                return _PASSED

            _, status = os.waitpid(_fork(write), 0)
            if status:
                raise pytest.UsageError("the tests do not run without a fault")
            found = msgspec.json.decode(Path(answer.name).read_bytes(), type=dict[int, Observed])
        return {i: each for i, each in found.items() if each.seconds < _SLOWEST_TEST_SECONDS}


def _fork(work: Any) -> int:
    """Run the function in a child process, which ends with its result. Return the process ID."""
    child = os.fork()
    if child:
        return child
    status = _FAILED
    try:
        status = work()
    finally:
        os._exit(status)


def _observed(items: Sequence[pytest.Item], files: set[str]) -> Iterator[tuple[int, Observed]]:
    called: dict[str, set[int]] = {}
    gc.unfreeze()
    # A test calls them as well if one before it has cached the answer.
    caches = [
        each
        for each in gc.get_objects()
        if isinstance(each, _CACHED_FUNCTION)
        if each.__wrapped__.__code__.co_filename in files
    ]

    def note(frame: FrameType, _event: str, _: object) -> None:
        code = frame.f_code
        if code.co_filename in files:
            called.setdefault(code.co_filename, set()).add(code.co_firstlineno)

    for index, item in enumerate(items):
        called.clear()
        for cached in caches:
            cached.cache_clear()
        started = time.process_time()
        sys.settrace(note)
        failed = _fails(item, items[index + 1] if index + 1 < len(items) else None)
        sys.settrace(None)
        if failed:
            print(f"{item.nodeid} fails without a fault", file=sys.__stderr__)
            continue
        seconds = time.process_time() - started
        yield index, Observed(seconds, {file: sorted(lines) for file, lines in called.items()})


def _fails(item: pytest.Item, following: pytest.Item | None) -> bool:
    reports = runtestprotocol(item, log=False, nextitem=following)
    return any(report.failed for report in reports)


def _replace_values(fault: Fault) -> bool:
    """Give a module, and those that import from it, other values. Return whether there are any."""
    replaced = False
    path = str(fault.path)
    [module] = [each for each in sys.modules.values() if getattr(each, "__file__", None) == path]
    before, after = ModuleType(module.__name__), ModuleType(module.__name__)
    for fresh, source in ((before, fault.path.read_bytes()), (after, fault.source)):
        exec(compile(source, path, "exec"), vars(fresh))  # noqa: S102 - a source of the project
    for name, changed in vars(after).items():
        value, same = getattr(module, name, None), getattr(before, name, None)
        if not callable(value) and not name.startswith("__") and value == same != changed:
            for each in sys.modules.values():
                if getattr(each, name, None) is value:
                    setattr(each, name, changed)
                    replaced = True
    return replaced


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_qualname, constant
            yield from _codes(constant)


def survivors(
    faults: Sequence[Fault], tests: Sequence[str], processes: int
) -> tuple[list[Fault], int]:
    """Return the faults that no test notices, and the exit status of pytest."""
    run = MutationRun(faults, processes)
    command = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not built", *tests]
    status = pytest.main(command, plugins=[run])
    left = run.unnoticed
    for fault in run.for_import:
        if not _is_noticed_on_import(fault, tests):
            left.append(fault)
            print(fault.describe(), flush=True)
    return left, status


def _is_noticed_on_import(fault: Fault, tests: Sequence[str]) -> bool:
    """Return whether the tests fail on a copy of the sources with the fault."""
    paths = [str(PROJECT / test) for test in tests]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += ["-m", "not built", "--rootdir", str(PROJECT), "-c", str(PROJECT / "pyproject.toml")]
    try:
        return run_with({fault.file: fault.source}, [*command, *paths]).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def main() -> int:
    """Print the faults that no test notices and no entry explains, and how many are noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=DEFAULT_PATHS)
    parser.add_argument("--count", type=int, help="how many faults to try; the default is all")
    parser.add_argument("--tests", action="append", help="test paths; default tests/unit/policies")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    modules = [
        module
        for path in options.paths
        for module in (sorted(path.resolve().rglob("*.py")) if path.is_dir() else [path.resolve()])
    ]
    every = [fault for module in modules for fault in faults_in(module)]
    known = equivalents()
    files = {fault.file for fault in every}
    stale = [e for e in known if e.file in files and not any(map(e.is_about, every))]
    listed = {fault for fault in every if any(entry.is_about(fault) for entry in known)}
    sample = [fault for fault in every if fault not in listed]
    if options.count is not None:
        sample = sorted(random.Random(0).sample(sample, min(options.count, len(sample))))
    left, status = survivors(sample, options.tests or _TESTS, options.processes)
    for entry in stale:
        print(f"{EQUIVALENT.name} has an entry about no fault: {entry}")
    print(
        f"{len(sample) - len(left)} of {len(sample)} faults noticed; "
        f"{len(listed)} equivalent ones are listed, of {len(every)} in all"
    )
    return 1 if left or stale or status else 0


if __name__ == "__main__":
    sys.exit(main())
