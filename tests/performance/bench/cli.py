"""Measures command lines over many manifests, and their start over one.

Each tool runs in its own process, once in each round, so that all of them see the same machine.
The result is the median. CPU is user and system time; memory is the largest resident set.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

import msgspec

from bench import kyverno
from controlplane.gpufence import COMMAND

COUNTS = (1_000, 10_000)
STARTS = 5
"""Measurements of a start in each round: it is short."""

_LOAD = """
import sys
from pathlib import Path
import yaml
path = Path(sys.argv[1])
for file in sorted(path.iterdir()) if path.is_dir() else [path]:
    for document in yaml.load_all(file.read_text(), yaml.CSafeLoader):
        pass
"""
GPUFENCE, PYYAML = "gpufence check", "PyYAML's CSafeLoader (parses only)"
COMMANDS: dict[str, tuple[str | Path, ...]] = {
    GPUFENCE: (COMMAND, "check"),
    f"{GPUFENCE} -o json": (COMMAND, "check", "-o", "json"),
    f"{GPUFENCE} -o sarif": (COMMAND, "check", "-o", "sarif"),
    PYYAML: (sys.executable, "-c", _LOAD),
}
"""Each command, without the file or directory that it reads."""

TRESPASSING = 50
"""One in this many Deployments tolerates the GPU taint without a GPU request."""

_MANIFEST = """\
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
_TOLERATIONS = "      tolerations:\n      - key: nvidia.com/gpu\n        operator: Exists\n"


class Usage(NamedTuple):
    """The resources that a process used: seconds and MiB."""

    wall: float
    cpu: float
    memory: float


class Measured(msgspec.Struct):
    """The results, by input and command line."""

    start: dict[str, Usage] = {}
    checking: dict[str, dict[str, Usage]] = {}


def measure(rounds: int) -> Measured:
    """Measure from a new, small process: a child starts with its parent's resident set."""
    completed = subprocess.run(
        [sys.executable, "-m", "bench.cli", str(rounds)], stdout=subprocess.PIPE, check=True
    )
    return msgspec.json.decode(completed.stdout, type=Measured)


def _measure(rounds: int) -> Measured:
    measured = Measured()
    if kyverno.WANTED:
        program = kyverno.programs()["kubectl-kyverno"]
        COMMANDS[kyverno.KYVERNO] = (program, "apply", kyverno.CHECKING, "--resource")
    with TemporaryDirectory(prefix="gpufence-bench-") as temporary:
        for count in COUNTS:
            for title, path in write_manifests(Path(temporary), count).items():
                for name in {GPUFENCE, kyverno.KYVERNO} & COMMANDS.keys():
                    if (found := trespasses(path, name)) != count // TRESPASSING:
                        raise RuntimeError(f"{name} reports {found} trespasses in {path}")
                measured.checking[title] = _in_rounds(_commands(path), rounds)
        single = next(path for path in Path(temporary).glob("many-*/app-00000.yaml"))
        measured.start = _in_rounds(_commands(single), rounds * STARTS)
    return measured


def _commands(path: Path) -> dict[str, Sequence[str | Path]]:
    return {name: [*command, path] for name, command in COMMANDS.items()}


def trespasses(path: Path, name: str = GPUFENCE) -> int:
    """Return the number of findings that a command line reports."""
    done = subprocess.run([*COMMANDS[name], path], capture_output=True, text=True)
    found = r"^.*  enforce  pool-trespass|^policy bench -> .* failed:"
    return len(re.findall(found, done.stdout, re.MULTILINE))


def _in_rounds(commands: Mapping[str, Sequence[str | Path]], rounds: int) -> dict[str, Usage]:
    """Return the medians of the commands; each round runs all of them, one after the other."""
    usages: dict[str, list[Usage]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            usages[name].append(_run(command))
    return {
        name: Usage(*map(median, zip(*samples, strict=True))) for name, samples in usages.items()
    }


def _run(command: Sequence[str | Path]) -> Usage:
    """Run a command and discard its output.

    Raises:
        RuntimeError: the exit status is neither 0 (no findings) nor 1 (findings).
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


def write_manifests(directory: Path, count: int) -> dict[str, Path]:
    """Write `count` Deployments twice: a file for each, and all in one file.

    One in five requests a GPU. Returns the paths by their title in the report.
    """
    many, one = directory / f"many-{count}", directory / f"all-{count}.yaml"
    many.mkdir()
    with one.open("w") as file:
        for number in range(count):
            text = _manifest(number)
            (many / f"app-{number:05}.yaml").write_text(text)
            file.write(f"---\n{text}")
    return {f"{count:,} files": many, f"{count:,} documents in one file": one}


def _manifest(number: int) -> str:
    return _MANIFEST.format(
        number=number,
        team=number % 20,
        gpu=", nvidia.com/gpu: 1" if number % 5 == 0 else "",
        tolerations=_TOLERATIONS if number % TRESPASSING == 1 else "",
    )


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(_measure(int(sys.argv[1]))))
