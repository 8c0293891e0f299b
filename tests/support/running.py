"""Runs the command line, in this process or in one of its own, and provides manifests for it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from controlplane import forked
from controlplane.gpufence import COMMAND
from policies.shipped import default_policy_text
from webhook.tools.cli.main import main


class Outcome(NamedTuple):
    """The result of a run of the command line."""

    status: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        return document

    @property
    def verdicts(self) -> list[str]:
        return [result["verdict"] for result in self.report["results"]]

    @property
    def errors(self) -> list[str]:
        return [result["error"] for result in self.report["results"] if "error" in result]


Run = Callable[..., Outcome]


@pytest.fixture
def gpufence(
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Run:
    """Run ``gpufence`` in an empty directory and return status and output."""
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "GPUFENCE_POLICY"):
        monkeypatch.delenv(name, raising=False)

    def run(*args: str | Path, stdin: str | bytes = b"") -> Outcome:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", BinaryStdin(data))
        status = main([str(arg) for arg in args])
        out, err = capfdbinary.readouterr()
        return Outcome(status, out.decode(), err.decode())

    return run


def write_policy(directory: Path, *changes: tuple[str, str], end: str = "") -> None:
    """Write ``policy.yaml``: the default policy with changes of its text, and more in its spec."""
    text = default_policy_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (directory / "policy.yaml").write_text(text + textwrap.indent(end, "  "))


def assert_golden(path: Path, text: str) -> None:
    """Compare a text with that of a file, which ``make golden`` writes: read the diff."""
    if os.environ.get("GPUFENCE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def run_here(*args: str | Path) -> Outcome:
    """Run the command line in this process: a start takes more than a second of CPU time."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        status = main([str(arg) for arg in args])
    texts = []
    for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read())
    return Outcome(status, *texts)


def run_command(*args: str | Path, stdin: bytes = b"", **environ: str) -> Outcome:
    """Run the installed command in a separate process."""
    done = subprocess.run(
        [COMMAND, *args], input=stdin, capture_output=True, check=False, env=environ or None
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture(scope="session")
def quick_command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The path of a `gpufence` that starts in an instant, for scripts of pages and of actions."""
    with forked.served(tmp_path_factory.mktemp("quick") / "bin") as path:
        yield path


class BinaryStdin(io.TextIOWrapper):
    """Standard input that holds some bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")


def manifest(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


GPU_POD = manifest("""
    apiVersion: v1
    kind: Pod
    metadata:
      name: train
      namespace: ml
    spec:
      containers:
        - name: train
          image: pytorch:2.9
          resources:
            limits:
              nvidia.com/gpu: 1
    """)

PLAIN_POD = manifest("""
    apiVersion: v1
    kind: Pod
    metadata:
      name: web
    spec:
      containers:
        - name: web
          image: nginx:1.29
    """)

TRESPASSER = manifest("""
    apiVersion: apps/v1
    kind: Deployment
    metadata:
      name: web
    spec:
      template:
        spec:
          tolerations:
            - key: nvidia.com/gpu
              operator: Exists
          containers:
            - name: web
              image: nginx:1.29
    """)

CONFIG_MAP = manifest("""
    apiVersion: v1
    kind: ConfigMap
    metadata:
      name: settings
    data:
      "on": "yes"
    """)

BROKEN = manifest("""
    apiVersion: v1
    kind: Pod
    metadata: [
    """)

NO_QUANTITY = manifest("""
    apiVersion: v1
    kind: Pod
    metadata:
      name: placeholder
    spec:
      containers:
        - name: train
          resources:
            limits:
              nvidia.com/gpu: ${GPUS}
    """)

FAULTS = manifest("""
    # Two documents with what is wrong in each.
    apiVersion: apps/v1
    kind: Deployment
    metadata:
      name: web
      namespace: shop
    spec:
      template:
        spec:
          tolerations:
            - operator: Exists
              key: nvidia.com/gpu
          containers:
            - name: web
              image: nginx:1.29
    ---
    apiVersion: v1
    kind: Pod
    metadata:
      name: peek
    spec:
      containers:
        - &base
          name: first
          image: cuda:13
          env:
            - name: NVIDIA_VISIBLE_DEVICES
              value: all
        - <<: *base
          name: second
    """)
"""Three findings; the last two have one position, because the second container is merged."""

FILES = [
    "a.yaml",
    "apps/web/deploy/web.yaml",
    "apps/web/test/web.yaml",
    "apps/db/deploy/db.yml",
    "apps/db/README.md",
    "charts/chart/templates/a.yaml",
    "charts/values.tmpl.yaml",
    ".git/config.yaml",
]
"""The files of the fixture ``tree``."""


@pytest.fixture
def tree(gpufence: Run, tmp_path: Path) -> Path:
    """A directory of manifests, in which the command line is run."""
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PLAIN_POD)
    return tmp_path
