"""Webhooks over TLS: requests a second, latency, CPU and memory, each pinned to one core."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import reviews
from bench.contestants import Contestant, load, pinned, running

CONNECTIONS = 16
SERVER_CORE, CLIENT_CORE = 0, 1


@dataclass(frozen=True)
class Served:
    """What one contestant did in one round; times in milliseconds."""

    rate: float
    p50: float
    p99: float
    cpu: float
    """CPU time of the server for one request."""
    memory: float
    """Resident memory after the round, in MiB."""


def measure(seconds: float, rounds: int) -> dict[str, dict[str, Served]]:
    """Return the medians by case (`gpu-pod mutate`) and contestant, alternating these."""
    found: dict[str, dict[str, list[Served]]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with running(folder, SERVER_CORE) as contestants:
            for _ in range(rounds + 1):
                for endpoint in reviews.asked("gpu-pod"):
                    case = f"gpu-pod {endpoint}"
                    for each in contestants:
                        served = _round(each, folder, endpoint, seconds)
                        found.setdefault(case, {}).setdefault(each.name, []).append(served)
    # The first round warms all of them up.
    return {
        case: {name: _middle(served[1:]) for name, served in by_name.items()}
        for case, by_name in found.items()
    }


def _round(
    contestant: Contestant, folder: Path, endpoint: reviews.Endpoint, seconds: float
) -> Served:
    body = folder / f"{endpoint}.body"
    body.write_bytes(reviews.body("gpu-pod", endpoint))
    before = contestant.cpu_seconds()
    with pinned(CLIENT_CORE):
        report = load(
            f"{contestant.url}/{endpoint}?timeout=3s",
            folder / "certs" / "ca.crt",
            body,
            connections=CONNECTIONS,
            seconds=seconds,
        )
    cpu = (contestant.cpu_seconds() - before) / report["requests"] * 1000
    return Served(report["rate"], report["p50"], report["p99"], cpu, contestant.memory())


def _middle(served: list[Served]) -> Served:
    fields = ("rate", "p50", "p99", "cpu", "memory")
    return Served(*(median(getattr(each, field) for each in served) for field in fields))
