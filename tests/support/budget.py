"""Prints what each area costs in a whole run, the files that cost most, and the slow tests.

The cost is the CPU time of the test processes and of all that they start: a control plane counts
for the tests that use it. It depends less on the load of the machine than a duration does, and no
test fails because of it. tests/conftest.py names this module in `pytest_plugins`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from paths import PROJECT

BUDGET: dict[str, int] = json.loads(Path(__file__).with_suffix(".json").read_text())
"""CPU-seconds by area, as measured on a machine with two cores."""
SLOW = 10.0
"""Seconds. A test that takes longer states the reason in the marker `slow`."""
MOST = 10
"""Files that are named."""
COST = pytest.StashKey["Counter[str]"]()
"""CPU time by file below tests/, in ticks of the kernel's clock."""
COUNTED = pytest.StashKey[int]()
TICKS = os.sysconf("SC_CLK_TCK")
"""In a second."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COST] = Counter()
    config.stash[COUNTED] = cpu_ticks()


def pytest_collection_finish(session: pytest.Session) -> None:
    count(session.config, "collection/of each process")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    result = yield
    if nextitem is None or nextitem.path != item.path:
        count(item.config, item.path.relative_to(PROJECT / "tests").as_posix())
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        cost = session.config.stash[COST]
        session.config.workeroutput["cost"] = dict(cost)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[COST].update(getattr(node, "workeroutput", {}).get("cost", {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    files, areas = config.stash[COST], Counter[str]()
    for file, ticks in files.items():
        areas[area(file)] += ticks
    terminalreporter.section("CPU-seconds by area, and the budget of a whole run")
    for name, ticks in sorted(areas.items()):
        terminalreporter.line(f"{name:24}{ticks / TICKS:8.0f}{BUDGET.get(name, 0):8}")
    terminalreporter.line(f"{'':24}{areas.total() / TICKS:8.0f}{sum(BUDGET.values()):8}")
    for file, ticks in files.most_common(MOST):
        terminalreporter.line(f"{ticks / TICKS:8.0f}  {file}")
    for report in terminalreporter.stats.get("passed", ()):
        if report.duration > SLOW and "slow" not in report.keywords:
            terminalreporter.line(f"{report.duration:.0f} s without a reason: {report.nodeid}")


def count(config: pytest.Config, file: str) -> None:
    """Charge the file with the CPU time since the last call."""
    now = cpu_ticks()
    config.stash[COST][file] += now - config.stash[COUNTED]
    config.stash[COUNTED] = now


def area(file: str) -> str:
    """Return the directory of a file, at most two levels deep."""
    return "/".join(file.split("/")[:-1][:2])


def cpu_ticks() -> int:
    """Return the CPU time of this process and its descendants, with those that ended (Linux)."""
    parents, ticks = {}, {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The second field is a name in parentheses that may hold anything: proc_pid_stat(5).
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(status.parent.name)
        parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    ours, found = {os.getpid()}, {os.getpid()}
    while found := {pid for pid, parent in parents.items() if parent in found} - ours:
        ours |= found
    return sum(ticks.get(pid, 0) for pid in ours)
