"""What `gpufence check` costs over 10,000 manifests and at the start: `make bench-cli`.

Every command runs in a process of its own, in rounds, one after the other in each round, so that
all of them see the same machine; medians are shown. CPU is user and system time of the process,
memory its largest resident set. The table goes to standard output, as Markdown.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import cli_peers

GPUFENCE = Path(sys.executable).with_name("gpufence")
COUNT = 10_000
ROUNDS = 3
START_ROUNDS = 15

YAML, VERSION, CHECK = 'python -c "import yaml"', "gpufence --version", "gpufence check (one file)"
START_FACTOR, START_SECONDS = 1.5, 0.060
"""The budget for a start: this often what PyYAML's import takes, and this much more."""

# How much of a run is parsing: the reader of documents is replaced by one with a stopwatch.
PROBE = """
import sys, time
from webhook.cli.manifests import documents
from webhook.cli.main import main
read, spent = documents.read_yaml, 0.0
def timed(text):
    global spent
    start = time.process_time()
    try:
        return read(text)
    finally:
        spent += time.process_time() - start
documents.read_yaml = timed
main(sys.argv[1:])
print(spent / time.process_time(), file=sys.stderr)
"""

MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: app-{number}
  namespace: team-{team}
  labels:
    app.kubernetes.io/name: app-{number}
    app.kubernetes.io/part-of: suite
spec:
  replicas: 2
  selector:
    matchLabels:
      app.kubernetes.io/name: app-{number}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: app-{number}
    spec:
      serviceAccountName: app
{tolerations}      containers:
      - name: main
        image: registry.example/app:{number}
        args: ["--port", "8080", "--verbose"]
        ports:
        - containerPort: 8080
          name: http
        env:
        - name: LOG_LEVEL
          value: info
        - name: POD_NAME
          valueFrom:
            fieldRef:
              fieldPath: metadata.name
        resources:
          limits: {{cpu: "2", memory: 4Gi{gpu}}}
          requests: {{cpu: 500m, memory: 1Gi}}
        readinessProbe:
          httpGet:
            path: /healthz
            port: http
        volumeMounts:
        - name: config
          mountPath: /etc/app
      volumes:
      - name: config
        configMap:
          name: app-{number}
"""
TOLERATIONS = "      tolerations:\n      - key: nvidia.com/gpu\n        operator: Exists\n"


class Usage(NamedTuple):
    """What a process took: seconds and MiB."""

    wall: float
    cpu: float
    memory: float


def manifest(number: int) -> str:
    """Return a Deployment: one in five requests a GPU, and one in fifty trespasses."""
    return MANIFEST.format(
        number=number,
        team=number % 20,
        gpu=", nvidia.com/gpu: 1" if number % 5 == 0 else "",
        tolerations=TOLERATIONS if number % 50 == 1 else "",
    )


def run(command: Sequence[str | Path]) -> Usage:
    """Run a command, whose output nobody reads.

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


def in_rounds(commands: Mapping[str, Sequence[str | Path]], rounds: int) -> dict[str, Usage]:
    """Return the medians of the commands, run one after the other in each round."""
    usages: dict[str, list[Usage]] = {name: [] for name in commands}
    for number in range(1, rounds + 1):
        for name, command in commands.items():
            usages[name].append(run(command))
        print(f"round {number} of {rounds}", file=sys.stderr)
    return {name: Usage(*map(median, zip(*each, strict=True))) for name, each in usages.items()}


def parsing_share(path: Path) -> float:
    """Return which part of the CPU time of a run is parsing YAML."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, "check", path], capture_output=True, text=True, check=True
    )
    return float(done.stderr.splitlines()[-1])


def start_table(usages: Mapping[str, Usage]) -> str:
    budget = START_FACTOR * usages[YAML].cpu + START_SECONDS
    rows = [
        f"| `{name}` | {usage.cpu * 1000:.0f} | {usage.wall * 1000:.0f} |"
        for name, usage in usages.items()
    ]
    head = "| start | CPU, ms | wall, ms |\n| --- | --- | --- |"
    rule = f"{START_FACTOR} times the first, and {START_SECONDS * 1000:.0f} ms"
    return "\n".join([head, *rows, f"\nBudget of CPU ({rule}): {budget * 1000:.0f} ms."])


def throughput_table(what: str, usages: Mapping[str, Usage]) -> str:
    ours = next(iter(usages.values()))
    rows = [
        f"| `{name}` | {usage.wall:.2f} | {usage.cpu:.2f} | {usage.cpu / ours.cpu:.2f} "
        f"| {usage.memory:.0f} |"
        for name, usage in usages.items()
    ]
    head = (
        f"| {what} | wall, s | CPU, s | CPU, ratio | memory, MiB |\n| --- | --- | --- | --- | --- |"
    )
    return "\n".join([head, *rows])


def main() -> int:
    """Measure, and print the tables; return the exit code."""
    peers = list(cli_peers.present())
    with TemporaryDirectory(prefix="gpufence-bench-") as temporary:
        folder = Path(temporary)
        many, one = folder / "many", folder / "all.yaml"
        many.mkdir()
        # Nothing is kept: a process counts the memory of the one that has started it as its own.
        with one.open("w") as file:
            for number in range(COUNT):
                text = manifest(number)
                (many / f"app-{number:05}.yaml").write_text(text)
                file.write(f"---\n{text}")
        single = many / "app-00000.yaml"
        start: dict[str, Sequence[str | Path]] = {
            YAML: [sys.executable, "-c", "import yaml"],
            VERSION: [GPUFENCE, "--version"],
            CHECK: [GPUFENCE, "check", single],
        }
        print(f"Python {platform.python_version()}, {os.cpu_count()} CPUs, {COUNT:,} manifests.\n")
        print(start_table(in_rounds(start, START_ROUNDS)), end="\n\n")
        for what, path in {"one folder": many, "one file": one}.items():
            commands: dict[str, Sequence[str | Path]] = {
                "gpufence check": [GPUFENCE, "check", path],
                "gpufence check -o json": [GPUFENCE, "check", "-o", "json", path],
                "gpufence check -o sarif": [GPUFENCE, "check", "-o", "sarif", path],
            }
            commands |= {name: [program, *arguments(path)] for name, program, arguments in peers}
            print(throughput_table(what, in_rounds(commands, ROUNDS)))
            print(f"\nParsing YAML is {parsing_share(path):.0%} of gpufence check.\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
