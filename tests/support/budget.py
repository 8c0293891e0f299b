"""Prints what the tests of each area cost in a whole run, and which of them are slow.

The cost is the CPU time of the test processes and of all that they start: a control plane counts
for the tests that use it. It depends less on the load of the machine than a duration does, and no
test fails because of it. tests/conftest.py names this module in `pytest_plugins`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from paths import PROJECT

BUDGET: dict[str, int] = json.loads(Path(__file__).with_suffix(".json").read_text())
"""CPU-seconds by area, as measured on a machine with two cores."""
SLOW = 10.0
"""Seconds. A test that takes longer states the reason in the marker `slow`."""
COST = pytest.StashKey[dict[str, float]]()
COUNTED = pytest.StashKey[float]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COST] = {}
    config.stash[COUNTED] = cpu_seconds()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    result = yield
    if nextitem is None or area(nextitem) != area(item):
        now = cpu_seconds()
        count(item.config, area(item), now - item.config.stash[COUNTED])
        item.config.stash[COUNTED] = now
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["cost"] = session.config.stash[COST]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    for name, seconds in getattr(node, "workeroutput", {}).get("cost", {}).items():
        count(node.config, name, seconds)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    cost = config.stash[COST]
    terminalreporter.section("CPU-seconds by area, and the budget of a whole run")
    for name, seconds in sorted(cost.items()):
        terminalreporter.line(f"{name:24}{seconds:8.0f}{BUDGET.get(name, 0):8}")
    terminalreporter.line(f"{'':24}{sum(cost.values()):8.0f}{sum(BUDGET.values()):8}")
    for report in terminalreporter.stats.get("passed", ()):
        if report.duration > SLOW and "slow" not in report.keywords:
            terminalreporter.line(f"{report.duration:.0f} s without a reason: {report.nodeid}")


def count(config: pytest.Config, name: str, seconds: float) -> None:
    cost = config.stash[COST]
    cost[name] = cost.get(name, 0.0) + seconds


def area(item: pytest.Item) -> str:
    """Return the directory of a test below tests/, at most two levels deep."""
    return "/".join(item.path.relative_to(PROJECT / "tests").parts[:-1][:2])


def cpu_seconds() -> float:
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
    return sum(ticks.get(pid, 0) for pid in ours) / os.sysconf("SC_CLK_TCK")
