"""What a run of the benchmarks found, its ratios, and which of them have fallen."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from bench import apiserver, cli, cli_peers, growth, serving
from bench import engine as engines
from bench.contestants import CONSTANT, GO, GPUFENCE

BASELINE = Path(__file__).with_name("baseline.json")
FALLEN = 0.8
"""Share of the baseline's ratio below which a ratio has fallen: what noise does not do."""


@dataclass
class Results:
    """One run; what was not measured in it is empty."""

    machine: dict[str, str] = field(default_factory=dict)
    engine: dict[str, float] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)
    growth: dict[str, dict[int, float]] = field(default_factory=dict)
    serving: dict[str, dict[str, serving.Served]] = field(default_factory=dict)
    apiserver: dict[apiserver.PodKind, dict[str, apiserver.Created]] = field(default_factory=dict)
    cli: cli.Measured = field(default_factory=cli.Measured)


PARTS = ("engine", "growth", "cli", "serving", "apiserver")


def measure(parts: tuple[str, ...], seconds: float, rounds: int) -> Results:
    """Measure the parts, `seconds` for each load and `rounds` of each contestant."""
    found = Results(machine=machine())
    if "engine" in parts:
        found.engine, found.parts = engines.whole(), engines.parts()
    if "growth" in parts:
        found.growth = growth.measure()
    if "cli" in parts:
        found.cli = cli.measure(rounds)
    if "serving" in parts:
        found.serving = serving.measure(seconds, rounds)
    if "apiserver" in parts:
        found.apiserver = apiserver.measure(seconds, rounds)
    return found


def machine() -> dict[str, str]:
    """Return what the figures depend on besides the code."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "processor": f"{os.cpu_count()} x {cpu[1] if cpu else platform.machine()}",
        "load before the run": f"{os.getloadavg()[0]:.1f}",
        "kernel": platform.release(),
        # Builds differ in speed: distributions optimize by profile.
        "Python": sys.version,
        **{name: metadata.version(name) for name in ("aiohttp", "msgspec", "PyYAML", "uvloop")},
        **_required("peers", "sigs.k8s.io/controller-runtime"),
        **_required("../../support/controlplane", "k8s.io/kubernetes"),
        **cli_peers.versions(),
    }


def _required(folder: str, module: str) -> dict[str, str]:
    pins = (Path(__file__).parent / folder / "go.mod").read_text()
    version = re.search(rf"\s{re.escape(module)} (v\S+)", pins)
    return {module: version[1] if version else "?"}


def ratios(found: Results) -> dict[str, float]:
    """Return what of a run says something on another machine: the higher, the better."""
    made: dict[str, float] = {}
    for case, by_name in found.serving.items():
        ours, go, constant = (by_name[name] for name in (GPUFENCE, GO, CONSTANT))
        made |= {
            f"{case}: requests/s of the Go webhook's": ours.rate / go.rate,
            f"{case}: requests/s of the constant answer's": ours.rate / constant.rate,
            f"{case}: p99 of the Go webhook relative to gpufence": go.p99 / ours.p99,
            f"{case}: CPU of the Go webhook relative to gpufence": go.cpu / ours.cpu,
        }
    for what, usages in found.cli.checking.items():
        ours_used = usages[cli_peers.GPUFENCE]
        for name in (cli_peers.CONFTEST, cli_peers.GATOR, cli_peers.PYYAML):
            if name in usages:
                made[f"{what}: CPU of {name} relative to gpufence"] = (
                    usages[name].cpu / ours_used.cpu
                )
        made[f"{what}: share of parsing in CPU"] = found.cli.shares[what].parsing
    for kind, created in found.apiserver.items():
        others = (GO, CONSTANT, apiserver.POLICIES, apiserver.NOTHING)
        ours_created = created[GPUFENCE]
        for name in others:
            other = created[name]
            made[f"{kind}: creates/s of {name}'s"] = ours_created.rate / other.rate
            made[f"{kind}: CPU of {name} relative to gpufence"] = (
                other.whole_cpu / ours_created.whole_cpu
            )
    return made


def fallen(now: Mapping[str, float], baseline: Mapping[str, float]) -> list[str]:
    """Return a line for each ratio that has fallen by a fifth, or more, since the baseline."""
    return [
        f"{name}: {now[name]:.2f}, and was {before:.2f}"
        for name, before in baseline.items()
        if name in now and now[name] < before * FALLEN
    ]
