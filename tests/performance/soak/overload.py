"""What `make overload` runs: far more callers than a replica can answer, and what becomes of them.

What is refused must be refused early and honestly, what is served must be served within its
deadline, and afterwards everything must be as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from soak.replica import replica, run
from soak.run import questions
from soak.sampling import at
from soak.traffic import Caller, Outcomes, press, send

SOURCES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
OF_EACH = 300
"""Fewer than one address may hold, and of two of them three times as many as a replica answers at a
time; three have more than a replica takes (`webhook.http.connections`)."""

DEADLINE = 3.0
_SECONDS = 10.0
_COLUMNS = (
    "load", "asked a second", "answered", "p50, ms", "p99, ms", "longest, ms", "refused",
    "refused after, ms",
)  # fmt: skip


async def overload(folder: Path) -> list[tuple[str, float, Outcomes]]:
    """Return what became of: the capacity, half of it, every caller at once, and half again."""
    asked = questions()
    found = []
    async with replica(folder, ("--register", "false")) as served:
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


def main() -> None:
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
