"""What is done every few seconds outlives its failures, and says each of them once."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from fake_apiserver import eventually
from webhook.kube.errors import ClusterError, UnreachableError
from webhook.periodic_task import PeriodicTask


class Work:
    def __init__(self) -> None:
        self.done = 0
        self.error: Exception | None = None

    async def __call__(self) -> None:
        if self.error is not None:
            raise self.error
        self.done += 1


async def test_a_repeated_failure_is_logged_once_and_counted_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    work, failed = Work(), list[str]()
    task = PeriodicTask("upkeep", work, 0, failed.append)
    assert await task.run_once()
    work.error = UnreachableError("nobody answers")
    for _ in range(3):
        assert not await task.run_once()
    assert task.problem == "nobody answers"
    work.error = ClusterError("policy.yaml: does not exist. Check the path.")
    assert not await task.run_once()
    assert task.problem == "policy.yaml: does not exist. Check the path."
    work.error = None
    assert await task.run_once()
    assert task.problem == ""
    assert failed == ["upkeep"] * 4
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert lines == [
        ("WARNING", "upkeep failed"),
        ("WARNING", "upkeep failed"),
        ("INFO", "upkeep restored"),
    ]


async def test_a_bug_is_logged_with_its_traceback_and_the_task_runs_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    work = Work()
    work.error = KeyError("spec")
    task = PeriodicTask("upkeep", work, 0)
    assert not await task.run_once()
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert record.exc_info
    work.error = None
    assert await task.run_once()


async def test_a_task_repeats_until_it_is_cancelled() -> None:
    work = Work()
    task = asyncio.create_task(PeriodicTask("upkeep", work, 0).run_forever())
    await eventually(lambda: work.done >= 3, "three runs")
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_wake_runs_a_task_before_its_interval_ends() -> None:
    work = Work()
    task = PeriodicTask("upkeep", work, 3600)
    running = asyncio.create_task(task.run_forever())
    for _ in range(3):
        before = work.done
        task.wake()
        await eventually(lambda: work.done > before, "another run")  # noqa: B023 - awaited at once
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
