"""Samples of each second, and the plot and the verdict that they give."""

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
"""How much more memory the end may have than the middle: what grows without end grows more."""


@dataclass(frozen=True)
class Sample:
    """One second: memory in MiB, latencies in milliseconds."""

    second: float
    memory: float
    descriptors: int
    right: int
    p50: float
    p99: float
    others: dict[str, int]


@dataclass
class Record:
    """The samples of a run, what it was like, and what was answered wrongly."""

    minutes: float
    rate: float
    capacity: float
    samples: list[Sample] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    notes: dict[str, float] = field(default_factory=dict)

    def look(
        self, second: float, pid: int, counts: Counter[str], latencies: Sequence[float]
    ) -> None:
        """Take a sample; `latencies` are sorted, in seconds."""
        others = {name: count for name, count in counts.items() if name != "right"}
        self.samples.append(
            Sample(
                round(second, 1),
                resident_mebibytes(pid),
                len(list(Path(f"/proc/{pid}/fd").iterdir())),
                counts["right"],
                at(latencies, 0.5),
                at(latencies, 0.99),
                others,
            )
        )

    def totals(self) -> Counter[str]:
        total = Counter({"right": sum(sample.right for sample in self.samples)})
        for sample in self.samples:
            total.update(sample.others)
        return total

    def faults(self) -> list[str]:
        """Return what is wrong with the run; nothing, where it is as it should be."""
        found = [f"wrong answer: {each}" for each in self.wrong[:5]]
        found += [
            f"{count} requests {name}" for name, count in self.totals().items() if name != "right"
        ]
        half = len(self.samples) // 2
        quiet = self.samples[-max(int(len(self.samples) * _QUIET_SHARE) // 2, 1) :]
        middle = max(sample.memory for sample in self.samples[: half + 1])
        last = max(sample.memory for sample in quiet)
        if last > middle * _GROWTH:
            found.append(f"memory grew from {middle:.0f} MiB in the first half to {last:.0f} MiB")
        before, after = self.samples[0].descriptors, quiet[-1].descriptors
        if after > before + 20:
            found.append(f"{before} descriptors at the beginning and {after} at the end")
        return found

    def write(self, directory: Path) -> None:
        """Write `soak.json` and `soak.png`."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "soak.json").write_text(json.dumps(asdict(self), indent=1) + "\n")
        self._plot(directory / "soak.png")

    def _plot(self, path: Path) -> None:
        from matplotlib.figure import Figure

        seconds = [sample.second / 60 for sample in self.samples]
        figure = Figure(figsize=(9, 8), layout="constrained")
        memory, descriptors, latency, answers = figure.subplots(4, 1, sharex=True)
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
        answers.plot(seconds, [sample.right for sample in self.samples], label="right")
        others = [sum(sample.others.values()) for sample in self.samples]
        answers.plot(seconds, others, label="anything else")
        answers.set_ylabel("answers a second")
        answers.legend(loc="center right")
        answers.set_xlabel("minutes")
        quiet = self.minutes * (1 - _QUIET_SHARE)
        for axes in (memory, descriptors, latency, answers):
            axes.axvline(quiet, color="grey", linestyle=":")
        figure.savefig(path, dpi=110)


def quiet_seconds(minutes: float) -> float:
    """Return how long no client misbehaves at the end."""
    return minutes * 60 * _QUIET_SHARE


def at(latencies: Sequence[float], share: float) -> float:
    if not latencies:
        return 0.0
    return latencies[int(share * (len(latencies) - 1))] * 1000
