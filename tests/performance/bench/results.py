"""The results of a benchmark run, their ratios, and regressions since the baseline."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from bench import apiserver, cli, engine, kyverno, serving
from bench.contestants import GO, GPUFENCE

BASELINE = Path(__file__).with_name("baseline.json")
REGRESSION = 0.8
"""A ratio below this share of the baseline's is a regression; noise is smaller."""


@dataclass
class Results:
    """The results of one run; parts that were not measured are empty."""

    machine: dict[str, str] = field(default_factory=dict)
    engine: dict[str, float] = field(default_factory=dict)
    serving: dict[str, dict[str, serving.Served]] = field(default_factory=dict)
    apiserver: dict[apiserver.PodKind, dict[str, apiserver.Created]] = field(default_factory=dict)
    cli: cli.Measured = field(default_factory=cli.Measured)


PARTS = ("engine", "cli", "serving", "apiserver")


def measure(parts: tuple[str, ...], seconds: float, rounds: int) -> Results:
    """Measure the parts, `seconds` for each load and `rounds` of each contestant."""
    if kyverno.WANTED:
        # The build takes minutes of the machine.
        kyverno.programs()
    results = Results(machine=machine())
    if "engine" in parts:
        results.engine = engine.whole()
    if "cli" in parts:
        results.cli = cli.measure(rounds)
    if "serving" in parts:
        results.serving = serving.measure(seconds, rounds)
    if "apiserver" in parts:
        results.apiserver = apiserver.measure(seconds, rounds)
    return results


def machine() -> dict[str, str]:
    """Describe the machine and the versions that the figures depend on."""
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
        **({"Kyverno": kyverno.VERSION} if kyverno.WANTED else {}),
    }


def _required(directory: str, module: str) -> dict[str, str]:
    pins = (Path(__file__).parent / directory / "go.mod").read_text()
    version = re.search(rf"\s{re.escape(module)} (v\S+)", pins)
    return {module: version[1] if version else "?"}


def ratios(results: Results) -> dict[str, float]:
    """Return the ratios that are comparable between machines; higher is better."""
    computed: dict[str, float] = {}
    for case, by_name in results.serving.items():
        own, go = by_name[GPUFENCE], by_name[GO]
        computed |= {
            f"{case}: requests/s of the Go webhook's": own.rate / go.rate,
            f"{case}: p99 of the Go webhook relative to gpufence": go.p99 / own.p99,
            f"{case}: CPU of the Go webhook relative to gpufence": go.cpu / own.cpu,
        }
    for title, usages in results.cli.checking.items():
        relative = usages[cli.PYYAML].cpu / usages[cli.GPUFENCE].cpu
        computed[f"{title}: CPU of {cli.PYYAML} relative to gpufence"] = relative
    for kind, created in results.apiserver.items():
        gpufence = created[GPUFENCE]
        for name in (GO, apiserver.NOTHING):
            peer = created[name]
            computed[f"{kind}: creates/s of {name}'s"] = gpufence.rate / peer.rate
            relative = peer.total_cpu / gpufence.total_cpu
            computed[f"{kind}: CPU of {name} relative to gpufence"] = relative
    return computed


def regressions(current: Mapping[str, float], baseline: Mapping[str, float]) -> list[str]:
    """Return a line for each ratio that is a fifth or more below the baseline."""
    return [
        f"{name}: {current[name]:.2f}, was {expected:.2f}"
        for name, expected in baseline.items()
        if name in current and current[name] < expected * REGRESSION
    ]
