"""Webhooks over TLS: requests a second, latency, CPU and memory, each pinned to one core."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import reviews
from bench.contestants import Contestant, load, pinned, running

CONNECTIONS = 16
SERVER_CORE, CLIENT_CORE = 0, 1


class Served(NamedTuple):
    """The figures of one contestant in one round; times in milliseconds."""

    rate: float
    p50: float
    p99: float
    cpu: float
    """CPU time of the server for one request."""
    memory: float
    """Resident memory after the round, in MiB."""


def measure(seconds: float, rounds: int) -> dict[str, dict[str, Served]]:
    """Return the medians by case (`gpu-pod mutate`) and contestant.

    The contestants take turns within each round.
    """
    rounds_by_case: dict[str, dict[str, list[Served]]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        with running(directory, SERVER_CORE) as contestants:
            for _ in range(rounds + 1):
                for endpoint in reviews.endpoints("gpu-pod"):
                    case = f"gpu-pod {endpoint}"
                    for contestant in contestants:
                        served = _round(contestant, directory, endpoint, seconds)
                        rounds_by_case.setdefault(case, {}).setdefault(contestant.name, []).append(
                            served
                        )
    # The first round is the warm-up.
    return {
        case: {
            name: Served(*map(median, zip(*samples[1:], strict=True)))
            for name, samples in by_name.items()
        }
        for case, by_name in rounds_by_case.items()
    }


def _round(
    contestant: Contestant, directory: Path, endpoint: reviews.Endpoint, seconds: float
) -> Served:
    body = directory / f"{endpoint}.body"
    body.write_bytes(reviews.body("gpu-pod", endpoint))
    cpu_before = contestant.cpu_seconds()
    with pinned(CLIENT_CORE):
        report = load(
            f"{contestant.url}/{endpoint}?timeout=3s",
            directory / "certs" / "ca.crt",
            body,
            connections=CONNECTIONS,
            seconds=seconds,
        )
    cpu = (contestant.cpu_seconds() - cpu_before) / report["requests"] * 1000
    return Served(report["rate"], report["p50"], report["p99"], cpu, contestant.memory())
