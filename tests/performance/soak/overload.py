"""What `make overload` runs: more callers than a replica can answer, and floods that send nothing.

A rejection must come early, a response within its deadline, and afterwards everything must be as
before. During a flood, an API server creates GPU Pods: every one must be created.
"""

from __future__ import annotations

import resource
import ssl
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from soak.cluster import Creations, fenced_cluster
from soak.floods import IDLE, ONE_BYTE, Flood, flooding
from soak.replica import replica, run
from soak.run import questions
from soak.sampling import at
from soak.traffic import Caller, Outcomes, press, send

SOURCES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
OF_EACH = 300
"""Fewer than one address may hold. Three addresses have more than a replica accepts
(`webhook.http.connections`)."""

DEADLINE = 3.0
_SECONDS = 10.0
_FLOOD_SECONDS = 20.0
_COLUMNS = (
    "load", "requested a second", "answered", "p50, ms", "p99, ms", "longest, ms", "rejected",
    "rejected after, ms",
)  # fmt: skip


async def overload(directory: Path) -> list[tuple[str, float, Outcomes]]:
    """Return what became of: the capacity, half of it, every caller at once, and half again."""
    asked = questions()
    found = []
    async with replica(directory, ("--register", "false")) as served:
        context = served.context()

        def callers(sources: Sequence[str], of_each: int, outcomes: Outcomes) -> list[Caller]:
            return [
                Caller(served.port, context, outcomes, source)
                for source in sources
                for _ in range(of_each)
            ]

        async def at_half(name: str, rate: float) -> None:
            outcomes = Outcomes()
            calm = callers(SOURCES[:1], 16, outcomes)
            await send(calm, asked, rate, _SECONDS)
            found.append((name, rate, outcomes))
            await _close(calm)

        outcomes = Outcomes()
        some = callers(SOURCES[:1], 16, outcomes)
        most = await press(some, asked, _SECONDS)
        found.append(("16 callers, each as often as it can", most, outcomes))
        await _close(some)
        await at_half("half of that, before", most / 2)
        for sources in (SOURCES[:2], SOURCES):
            outcomes = Outcomes()
            crowd = callers(sources, OF_EACH, outcomes)
            rate = await press(crowd, asked, _SECONDS)
            found.append((f"{len(crowd):,} callers, each as often as it can", rate, outcomes))
            await _close(crowd)
        await at_half("half of that, after", most / 2)
    return found


async def _close(callers: Sequence[Caller]) -> None:
    for caller in callers:
        await caller.close()


def floods(directory: Path) -> list[str]:
    """Create GPU Pods during each flood; return what is wrong."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    problems = []
    with fenced_cluster(directory, 1) as (release, [replica]):
        context = ssl.create_default_context(cadata=release.secret()["ca.crt"].decode())
        port = replica.port
        slow = Flood(port, SOURCES[:1], 230, ONE_BYTE, context)
        idle = Flood(port, SOURCES[1:], 400, IDLE, context)
        for name, running in (
            ("no flood", ()),
            ("230 connections with one-byte bodies", (slow,)),
            ("two addresses with 400 idle connections each", (idle,)),
            ("both", (slow, idle)),
        ):
            opened = [flood.opened for flood in running]
            with flooding(*running):
                # Until all connections are there.
                time.sleep(_FLOOD_SECONDS / 4)
                with Creations(release.cluster.api) as creations:
                    time.sleep(_FLOOD_SECONDS)
                    status, _ = replica.ask("/readyz")
            more = sum(flood.opened for flood in running) - sum(opened)
            took = sorted(creations.seconds)
            print(
                f"{name}: {len(took)} GPU Pods created, {len(creations.failures)} failed, longest "
                f"{at(took, 1):.0f} ms, p50 {at(took, 0.5):.0f} ms; {more} connections opened"
            )
            if creations.failures or creations.wrong or not took or status != 200:
                problems.append(f"{name}: {status} {(creations.failures + creations.wrong)[:3]}")
    return problems


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        problems = floods(Path(directory))
    if problems:
        raise SystemExit(f"FAULT: {problems}")
    found = run(overload)
    print(f"| {' | '.join(_COLUMNS)} |")
    print(f"| --- |{' ---: |' * (len(_COLUMNS) - 1)}")
    for name, rate, outcomes in found:
        times, refusals = sorted(outcomes.latencies), sorted(outcomes.refusals)
        cells = (
            *(name, f"{rate:.0f}", f"{len(times)}"),
            *(f"{at(times, share):.1f}" for share in (0.5, 0.99, 1)),
            *(f"{len(refusals)}", f"{at(refusals, 1):.1f}"),
        )
        print(f"| {' | '.join(cells)} |")
        if outcomes.wrong or at(times, 1) > DEADLINE * 1000:
            raise SystemExit(f"FAULT: wrong or late: {outcomes.wrong[:3]}")


if __name__ == "__main__":
    main()
