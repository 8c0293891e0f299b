"""Samples of a soak run, its problems and its plot."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.contestants import resident_mebibytes

_QUIET_SHARE = 0.1
"""The last part of the run, in which no client misbehaves."""

_GROWTH = 1.15
"""Allowed growth of memory from the first half to the end; a leak grows more."""


@dataclass(frozen=True)
class Sample:
    """One second: memory in MiB, latencies in milliseconds."""

    second: float
    memory: float
    descriptors: int
    correct: int
    p50: float
    p99: float
    others: dict[str, int]


@dataclass
class Record:
    """The parameters, samples and wrong responses of a run."""

    minutes: float
    rate: float
    capacity: float
    samples: list[Sample] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    notes: dict[str, float] = field(default_factory=dict)

    def sample(
        self, second: float, pid: int, counts: Counter[str], latencies: Sequence[float]
    ) -> None:
        """Take a sample; `latencies` are sorted, in seconds."""
        others = {name: count for name, count in counts.items() if name != "correct"}
        self.samples.append(
            Sample(
                round(second, 1),
                resident_mebibytes(pid),
                len(list(Path(f"/proc/{pid}/fd").iterdir())),
                counts["correct"],
                _at(latencies, 0.5),
                _at(latencies, 0.99),
                others,
            )
        )

    def totals(self) -> Counter[str]:
        total = Counter({"correct": sum(sample.correct for sample in self.samples)})
        for sample in self.samples:
            total.update(sample.others)
        return total

    def problems(self) -> list[str]:
        """Return the problems of the run."""
        problems = [f"wrong response: {response}" for response in self.wrong[:5]]
        problems += [
            f"{count} requests {name}" for name, count in self.totals().items() if name != "correct"
        ]
        half = len(self.samples) // 2
        quiet = self.samples[-max(int(len(self.samples) * _QUIET_SHARE) // 2, 1) :]
        first_half = max(sample.memory for sample in self.samples[: half + 1])
        last = max(sample.memory for sample in quiet)
        if last > first_half * _GROWTH:
            problems.append(
                f"memory grew from {first_half:.0f} MiB in the first half to {last:.0f} MiB"
            )
        first_count, last_count = self.samples[0].descriptors, quiet[-1].descriptors
        if last_count > first_count + 20:
            problems.append(f"descriptors grew from {first_count} to {last_count}")
        return problems

    def write(self, directory: Path) -> None:
        """Write `soak.json` and `soak.png`."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "soak.json").write_text(json.dumps(asdict(self), indent=1) + "\n")
        self._plot(directory / "soak.png")

    def _plot(self, path: Path) -> None:
        from matplotlib.figure import Figure

        seconds = [sample.second / 60 for sample in self.samples]
        figure = Figure(figsize=(9, 8), layout="constrained")
        memory, descriptors, latency, responses = figure.subplots(4, 1, sharex=True)
        memory.plot(seconds, [sample.memory for sample in self.samples])
        memory.set_ylabel("memory, MiB")
        memory.set_ylim(bottom=0)
        descriptors.plot(seconds, [sample.descriptors for sample in self.samples])
        descriptors.set_ylabel("descriptors")
        latency.plot(seconds, [sample.p99 for sample in self.samples], label="p99")
        latency.plot(seconds, [sample.p50 for sample in self.samples], label="p50")
        latency.set_yscale("log")
        latency.set_ylabel("latency, ms")
        latency.legend(loc="upper right")
        responses.plot(seconds, [sample.correct for sample in self.samples], label="correct")
        others = [sum(sample.others.values()) for sample in self.samples]
        responses.plot(seconds, others, label="anything else")
        responses.set_ylabel("responses a second")
        responses.legend(loc="center right")
        responses.set_xlabel("minutes")
        quiet = self.minutes * (1 - _QUIET_SHARE)
        for axes in (memory, descriptors, latency, responses):
            axes.axvline(quiet, color="grey", linestyle=":")
        figure.savefig(path, dpi=110)


def quiet_seconds(minutes: float) -> float:
    """Return the seconds at the end in which no client misbehaves."""
    return minutes * 60 * _QUIET_SHARE


def _at(latencies: Sequence[float], share: float) -> float:
    if not latencies:
        return 0.0
    return latencies[int(share * (len(latencies) - 1))] * 1000
