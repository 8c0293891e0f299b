"""Several processes for one replica: what dies, what is asked, and who is told to end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from certs.files import issue
from controlplane.process import runs
from reviewing import UID, encode, plain_pod, review
from served_process import Server, get, read_response, request, server

GOOD = encode(review(plain_pod()))
READY = (200, "ok\n")


@asynccontextmanager
async def workers(pair: Path, count: int = 2, **options: Any) -> AsyncIterator[Server]:
    """Run a server of several workers, in the block once all of them are ready."""
    async with server(pair, workers=count, **options) as running:
        for _ in range(count):
            await running.logged("ready")
        yield running


def pids(running: Server) -> dict[int, int]:
    """Return the process that each worker is by now."""
    started = (line for line in running.lines if line["event"] == "worker started")
    return {line["worker"]: line["pid"] for line in started}


async def answers(running: Server) -> bool:
    """Ask for a review on a connection of its own, and tell whether it was allowed."""
    reader, writer = await running.connect()
    writer.write(request(GOOD))
    _, answer = await read_response(reader)
    writer.close()
    await writer.wait_closed()
    return bool(answer["response"] == {"uid": UID, "allowed": True})


async def series(running: Server, name: str) -> dict[str, float]:
    """Return what one scrape says of a metric, by worker."""
    _, text = await get(f"{running.operations}/metrics")
    return {
        sample.labels["worker"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Ask again until something holds."""
    async with asyncio.timeout(30):
        while not await holds():
            pass


async def test_every_worker_answers_and_one_scrape_counts_all_of_them(pair: Path) -> None:
    counted = "gpufence_admission_duration_seconds_count"
    async with workers(pair) as running:
        asked = 0

        async def all_have_answered() -> bool:
            nonlocal asked
            assert await answers(running)
            asked += 1
            return len(await series(running, counted)) == 2

        await until(all_have_answered)
        assert sum((await series(running, counted)).values()) == asked
        assert await series(running, "gpufence_worker_up") == {"0": 1, "1": 1}
        assert await get(f"{running.operations}/readyz") == READY
        assert await get(f"{running.operations}/healthz") == READY


async def test_a_worker_that_hangs_is_named_and_the_other_takes_what_comes(pair: Path) -> None:
    async with workers(pair) as running:
        hung = pids(running)[1]
        os.kill(hung, signal.SIGSTOP)
        try:
            ready, healthy, up = await asyncio.gather(
                get(f"{running.operations}/readyz"),
                get(f"{running.operations}/healthz"),
                series(running, "gpufence_worker_up"),
            )
            assert ready == healthy == (503, "worker 1: does not answer\n")
            assert up == {"0": 1, "1": 0}
            assert await answers(running)
        finally:
            os.kill(hung, signal.SIGCONT)
        assert await get(f"{running.operations}/readyz") == READY


async def test_a_worker_that_dies_is_started_again_on_the_same_addresses(pair: Path) -> None:
    async with workers(pair, settled_seconds=0) as running:
        before = pids(running)
        os.kill(before[0], signal.SIGKILL)
        line = await running.logged("worker ended")
        assert (line["worker"], line["next"]) == (0, "it is started again")
        assert line["problem"] == (
            "signal 9 (Killed): if nobody sent it, memory was short: raise its limit, "
            "or use fewer workers"
        )
        assert await answers(running)
        again = await running.logged("ready")
        assert (again["worker"], again["port"]) == (0, running.ready["port"])
        assert pids(running)[0] != before[0]
        assert pids(running)[1] == before[1]
        assert await get(f"{running.operations}/readyz") == READY
        running.terminate()
        assert await running.ended() == 0


async def test_a_worker_that_dies_soon_ends_all_with_its_status_and_the_others_drain(
    pair: Path,
) -> None:
    async with workers(pair) as running:
        os.kill(pids(running)[1], signal.SIGSEGV)
        line = await running.logged("worker ended")
        assert line["problem"].startswith("signal 11 (Segmentation fault): if nobody sent it, ple")
        assert line["next"].startswith("all end")
        assert (await running.logged("stopped"))["worker"] == 0
        assert await running.ended() == 128 + signal.SIGSEGV


async def test_when_all_are_to_end_a_worker_that_died_at_the_same_time_is_not_started_again(
    pair: Path,
) -> None:
    settled = 2.0
    async with workers(pair, settled_seconds=settled) as running:
        began = asyncio.get_running_loop().time()
        await until(lambda: _is_past(began + settled))
        os.kill(pids(running)[0], signal.SIGKILL)
        await running.logged("worker started")
        # It learns of both deaths at once: of one that lived long enough, and of one that did not.
        running.process.send_signal(signal.SIGSTOP)
        for pid in pids(running).values():
            os.kill(pid, signal.SIGKILL)
        await until(lambda: _none_runs(pids(running).values()))
        running.process.send_signal(signal.SIGCONT)
        ended = [await running.logged("worker ended") for _ in range(2)]
        assert [line["worker"] for line in ended] == [1, 0]
        assert await running.ended() == 128 + signal.SIGKILL


async def _none_runs(of: Iterable[int]) -> bool:
    await asyncio.sleep(0)
    return not any(runs(pid) for pid in of)


async def _is_past(moment: float) -> bool:
    await asyncio.sleep(0)
    return asyncio.get_running_loop().time() > moment


async def test_what_no_worker_can_start_with_is_said_and_ends_all(tmp_path: Path) -> None:
    async with server(tmp_path, workers=2) as running:
        line = await running.logged("worker ended")
        assert line["problem"] == "exit status 1: see what it has said before"
        assert await running.ended() == 1
        assert f"StorageError: {tmp_path / 'tls.crt'}: does not exist." in running.rest


async def test_all_drain_before_the_end_and_what_is_under_way_is_finished(pair: Path) -> None:
    async with workers(pair) as running:
        reader, writer = await running.connect()
        writer.write(request(GOOD, upto=100))
        await writer.drain()
        # It has begun once it is counted.
        in_flight = "gpufence_admission_requests_in_flight"
        await until(lambda: _comes_to(running, in_flight, 1))
        running.terminate()
        assert {(await running.logged("draining"))["worker"] for _ in range(2)} == {0, 1}
        writer.write(GOOD[100:])
        _, answer = await read_response(reader)
        assert answer["response"]["allowed"]
        writer.close()
        assert await running.ended() == 0


async def _comes_to(running: Server, name: str, total: float) -> bool:
    return sum((await series(running, name)).values()) == total


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_to_all_of_them_as_of_a_terminal_counts_once(
    pair: Path, number: signal.Signals
) -> None:
    async with workers(pair, start_new_session=True, drain_seconds=60) as running:
        for told in ("draining", "stopped"):
            # The second one cuts the drain short.
            os.killpg(running.process.pid, number)
            assert {(await running.logged(told))["worker"] for _ in range(2)} == {0, 1}
            if told == "draining":
                status, text = await get(f"{running.operations}/readyz")
                assert status == 503
                assert text == "worker 0: shutting down\nworker 1: shutting down\n"
        assert await running.ended() == 0


async def test_workers_end_when_nobody_is_left_to_look_after_them(pair: Path) -> None:
    async with workers(pair) as running:
        running.process.kill()
        assert {(await running.logged("stopped"))["worker"] for _ in range(2)} == {0, 1}
        assert running.process.stderr is not None
        async with asyncio.timeout(30):
            # It ends with the last process that could write to it.
            await running.process.stderr.read()


async def test_an_address_of_workers_is_not_shared_with_another_server(pair: Path) -> None:
    async with workers(pair) as first:

        async def is_refused(option: str, count: int) -> None:
            taken = first.ready["port" if option == "port" else "metricsPort"]
            async with server(pair, workers=count, **{option: taken}) as second:
                assert await second.ended() == 1
                assert second.process.stderr is not None
                problem = (await second.process.stderr.read()).decode()
            assert f"ListenError: 127.0.0.1:{taken}: cannot be listened on (" in problem

        others = product(("port", "metrics_port"), (1, 2))
        await asyncio.gather(*(is_refused(*each) for each in others))


async def test_each_worker_takes_up_a_new_certificate(pair: Path) -> None:
    async with workers(pair, reload_seconds=0.05) as running:
        issue(["localhost"], ["127.0.0.1"], pair, datetime.now(UTC), force=True)
        assert {(await running.logged("certificate reloaded"))["worker"] for _ in range(2)} == {
            0,
            1,
        }
        running.tls.load_verify_locations(pair / "ca.crt")
        assert await answers(running)
