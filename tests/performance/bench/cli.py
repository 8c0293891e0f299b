"""What command lines cost over manifests and at the start, in processes of their own.

They run in rounds, one after the other in each, so that all of them see the same machine; medians
count. CPU is user and system time of the process, memory its largest resident set.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

import msgspec

from bench import cli_manifests, cli_peers

COUNTS = (1_000, 10_000)
STARTS = 5
"""How often a start is measured in a round: it is short."""

LIBRARIES = "Python with gpufence's libraries"
_IMPORT = "import click, msgspec, yaml"

# Which part of a run is parsing: what reads is replaced by itself with a stopwatch.
_PROBE = """
import sys, time
from webhook.cli.manifests import evaluate
from webhook.cli.main import main
from webhook.cli.manifests import documents

def timed(module, name):
    function, spent = getattr(module, name), [0.0]
    def with_stopwatch(*args, **options):
        start = time.process_time()
        try:
            return function(*args, **options)
        finally:
            spent[0] += time.process_time() - start
    setattr(module, name, with_stopwatch)
    return spent

parsing, reading = timed(documents, "read_yaml"), timed(evaluate, "read_manifests")
status = main(sys.argv[1:])
whole = time.process_time()
print(parsing[0] / whole, reading[0] / whole, file=sys.stderr)
sys.exit(status)
"""


class Usage(NamedTuple):
    """What a process took: seconds and MiB."""

    wall: float
    cpu: float
    memory: float


class Shares(NamedTuple):
    """Parts of the CPU time of `gpufence check`.

    `parsing` is YAML's text becoming values, `reading` that and whatever comes before: finding,
    opening and splitting the files.
    """

    parsing: float
    reading: float


class Measured(msgspec.Struct):
    """What was found, by the names of command lines, and of what they were run over."""

    start: dict[str, Usage] = {}
    checking: dict[str, dict[str, Usage]] = {}
    shares: dict[str, Shares] = {}


def measure(rounds: int) -> Measured:
    """Measure all of it from a small process: what a process starts has its memory counted in."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.cli", str(rounds)], stdout=subprocess.PIPE, check=True
    )
    return msgspec.json.decode(done.stdout, type=Measured)


def _measure(rounds: int) -> Measured:
    lines = list(cli_peers.command_lines())
    found = Measured()
    with TemporaryDirectory(prefix="gpufence-bench-") as temporary:
        for count in COUNTS:
            for what, path in cli_manifests.write(Path(temporary), count).items():
                _same_findings(lines, path, count)
                commands = {line.name: line.arguments(path) for line in lines}
                found.checking[what] = _in_rounds(commands, rounds)
                found.shares[what] = shares(path, rounds)
        single = next(path for path in Path(temporary).glob("many-*/app-00000.yaml"))
        starts: dict[str, Sequence[str | Path]] = {LIBRARIES: [sys.executable, "-c", _IMPORT]}
        starts |= {line.name: line.arguments(single) for line in lines}
        found.start = _in_rounds(starts, rounds * STARTS)
    return found


def _same_findings(lines: Iterable[cli_peers.CommandLine], path: Path, count: int) -> None:
    """Have each tool that judges find what trespasses: what is measured is a job that is done."""
    there = count // cli_manifests.TRESPASSING
    for line in lines:
        if line.finding and (found := line.found(path)) != there:
            raise RuntimeError(f"{line.name} finds {found} of {there} that trespass in {path}")


def _in_rounds(commands: Mapping[str, Sequence[str | Path]], rounds: int) -> dict[str, Usage]:
    """Return the medians of the commands, run one after the other in each round."""
    usages: dict[str, list[Usage]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            usages[name].append(_run(command))
    return {name: Usage(*map(median, zip(*each, strict=True))) for name, each in usages.items()}


def _run(command: Sequence[str | Path]) -> Usage:
    """Run a command and discard its output.

    Raises:
        RuntimeError: it ended otherwise than with what it found (0 or 1), as it does on bad input.
    """
    start = perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{command}: status {process.returncode}: {errors[-500:]}")
    wall = perf_counter() - start
    return Usage(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def shares(path: Path, rounds: int) -> Shares:
    command: list[str | Path] = [sys.executable, "-c", _PROBE, "check", path]
    found = []
    for _ in range(rounds):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{command}: status {done.returncode}: {done.stderr[-500:]}")
        found.append([float(part) for part in done.stderr.split()])
    return Shares(*map(median, zip(*found, strict=True)))


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(_measure(int(sys.argv[1]))))
