"""Implements `make faults`: two replicas under load while their API server fails in every way.

    python -m soak.faults MINUTES [DIRECTORY]

The replicas reach a real API server through a proxy that injects each fault twice, with an equally
long recovery after each. The API server reaches the replicas directly and creates GPU Pods all the
time: every one must be created and mutated. The exit status is 1 if one is not, if a collection is
listed again, or if a replica ends. DIRECTORY (build/faults) receives faults.json and faults.png.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.contestants import resident_mebibytes
from controlplane import kubeconfig
from controlplane.gpufence import Replica
from controlplane.process import runs
from fault_proxy import FAULTS, Fault, ProxyThread
from release.load import Load
from soak.cluster import fenced_cluster

REPLICAS = 2
ROUNDS = 2
# The intervals of an installation; other tests use shorter ones.
FLAGS = ("--poll-seconds", "5", "--node-facts")


@dataclass
class Sample:
    """One second: each replica's memory in MiB, creates, and requests to the API server."""

    second: float
    fault: str
    memory: list[float]
    created: int
    failed: int
    requests: int


@dataclass
class Record:
    """A whole run."""

    minutes: float
    samples: list[Sample] = field(default_factory=list)
    lists: dict[str, int] = field(default_factory=dict)
    lists_before: dict[str, int] = field(default_factory=dict)
    longest: float = 0.0
    failures: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def problems(self) -> list[str]:
        """Return what went wrong beyond the injected faults."""
        problems = []
        if self.failures:
            problems.append(f"{len(self.failures)} Pods not created: {self.failures[0]}")
        problems += [f"replica ended: {replica}" for replica in self.ended]
        for name, count in self.lists.items():
            before = self.lists_before.get(name, 0)
            if before and count > before:
                problems.append(f"{name}: {count - before} more during the faults")
        return problems


def measure(minutes: float, directory: Path) -> Record:
    record = Record(minutes)
    with (
        fenced_cluster(directory, 0) as (released, _),
        ProxyThread(released.cluster.url, released.cluster.client_context()) as thread,
    ):
        proxy = thread.proxy
        config = kubeconfig.write(directory / "proxy.kubeconfig", proxy.url, {"token": "unused"})
        flags = (*FLAGS, "--kubeconfig", str(config))
        with released.replicas(REPLICAS, *flags) as running:
            replicas = running.replicas
            record.lists_before = lists(proxy.requests)
            with Load(released.cluster.api, "default", every=0.05) as load:
                for fault in schedule():
                    sample(record, thread, fault, minutes, replicas, load)
            record.lists = lists(proxy.requests)
            record.longest = max(load.durations, default=0.0)
            record.failures = load.failures
    return record


def schedule() -> Iterator[Fault | None]:
    """Yield each fault ROUNDS times, with a recovery (None) after each."""
    for _ in range(ROUNDS):
        for fault in FAULTS:
            yield fault
            yield None


def sample(
    record: Record,
    thread: ProxyThread,
    fault: Fault | None,
    minutes: float,
    replicas: Sequence[Replica],
    load: Load,
) -> None:
    """Sample each second of one part of the run."""
    if fault is not None:
        thread.begin(fault)
    ends = time.monotonic() + minutes * 60 / (2 * ROUNDS * len(FAULTS))
    while time.monotonic() < ends:
        created, failed = load.created, len(load.failures)
        requests = thread.proxy.requests.total()
        time.sleep(1)
        pids = [replica.process.pid or 0 for replica in replicas]
        ended = [replica.port for replica, pid in zip(replicas, pids, strict=True) if not runs(pid)]
        if ended:
            record.ended += [f"port {port}, during {fault or 'no fault'}" for port in ended]
            return
        memory = [resident_mebibytes(pid) for pid in pids]
        record.samples.append(
            Sample(
                len(record.samples) + 1.0,
                fault or "",
                memory,
                load.created - created,
                len(load.failures) - failed,
                thread.proxy.requests.total() - requests,
            )
        )
    thread.end()


def lists(requests: Counter[str]) -> dict[str, int]:
    """Return the lists of each collection that a reflector follows."""
    followed = {f"LIST {name.removeprefix('WATCH ')}" for name in requests if "WATCH" in name}
    return {name: requests[name] for name in sorted(followed)}


def plot(record: Record, path: Path) -> None:
    from matplotlib.figure import Figure

    seconds = [sample.second / 60 for sample in record.samples]
    figure = Figure(figsize=(9, 8), layout="constrained")
    memory, creations, requests = figure.subplots(3, 1, sharex=True)
    for index in range(REPLICAS):
        values = [sample.memory[index] for sample in record.samples]
        memory.plot(seconds, values, label=f"replica {index + 1}")
    memory.set_ylabel("memory, MiB")
    memory.set_ylim(0, 1.2 * max(max(sample.memory) for sample in record.samples))
    memory.legend(loc="lower right")
    creations.plot(seconds, [sample.created for sample in record.samples], label="created")
    creations.plot(seconds, [sample.failed for sample in record.samples], label="failed")
    creations.set_ylabel("GPU Pods a second")
    creations.legend(loc="upper right")
    requests.plot(seconds, [sample.requests for sample in record.samples])
    requests.set_ylabel("requests to\nthe API server")
    requests.set_xlabel("minutes")
    for axes in (memory, creations, requests):
        for sample in record.samples:
            if sample.fault:
                axes.axvspan((sample.second - 1) / 60, sample.second / 60, color="0.9", lw=0)
    previous = ""
    for sample in record.samples:
        if sample.fault and sample.fault != previous:
            # Above the axes and rotated: the names are wider than the faults.
            memory.annotate(
                sample.fault,
                (sample.second / 60, 1.02),
                xycoords=("data", "axes fraction"),
                fontsize=8,
                rotation=20,
            )
        previous = sample.fault
    figure.savefig(path, dpi=110)


def main(minutes: float, directory: Path) -> int:
    with tempfile.TemporaryDirectory() as temporary:
        record = measure(minutes, Path(temporary))
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "faults.json").write_text(json.dumps(asdict(record), indent=1) + "\n")
    plot(record, directory / "faults.png")
    created = sum(sample.created for sample in record.samples)
    print(
        f"{created} GPU Pods created; {len(record.failures)} "
        f"failed; the longest took {record.longest * 1e3:.0f} ms"
    )
    for fault in (*FAULTS, ""):
        of_fault = [sample for sample in record.samples if sample.fault == fault]
        print(
            f"{fault or 'no fault':<18} {len(of_fault):4} s: "
            f"{sum(sample.created for sample in of_fault)} created, "
            f"{sum(sample.failed for sample in of_fault)} failed, "
            f"{sum(sample.requests for sample in of_fault)} requests to the API server"
        )
    for name, count in record.lists.items():
        at_start = record.lists_before.get(name, 0)
        print(f"{name}: {at_start} at the start, {count - at_start} more during the faults")
    memory = [max(sample.memory) for sample in record.samples]
    print(
        f"Memory of the larger replica: "
        f"{memory[0]:.0f} MiB at the start, {max(memory):.0f} at most, {memory[-1]:.0f} at the end"
    )
    for problem in record.problems():
        print("PROBLEM:", problem)
    return 1 if record.problems() else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python -m soak.faults MINUTES [DIRECTORY]")
    sys.exit(
        main(float(sys.argv[1]), Path(*sys.argv[2:]) if sys.argv[2:] else Path("build/faults"))
    )
