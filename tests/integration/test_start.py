"""SIGTERM at any point of the start, sent to PID 1 of a container."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import settings

from certificates import issue
from controlplane.gpufence import COMMAND
from controlplane.poll import until
from policies.shipped import DEFAULT

# 2, and more in `make laws`, like the examples of the laws.
POINTS = settings().max_examples // 10


@contextmanager
def started(directory: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start ``gpufence serve`` as PID 1; yield what runs it, and its PID outside."""
    command = [
        *("unshare", "--pid", "--fork", "--kill-child", str(COMMAND), "serve"),
        f"--policy={DEFAULT}",
        f"--tls-cert={directory / 'tls.crt'}",
        f"--tls-key={directory / 'tls.key'}",
        *("--host=127.0.0.1", "--port=0"),
        *("--metrics-port=0", "--drain-seconds=0"),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            yield process, child_of(process)
        finally:
            process.kill()


def child_of(process: subprocess.Popen[bytes]) -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    ends = time.monotonic() + 10
    while time.monotonic() < ends and process.poll() is None:
        if found := children.read_text().split():
            return int(found[0])
    assert process.stderr is not None
    pytest.skip(f"no PID namespace: {process.stderr.read().decode().strip()}")


def catches_sigterm(pid: int) -> bool:
    """Return whether a process has a handler: proc_pid_status(5)."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> signal.SIGTERM - 1 & 1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has PID namespaces")
def test_sigterm_at_any_point_of_the_start_ends_the_process(tmp_path: Path) -> None:
    issue(["localhost", "127.0.0.1"], tmp_path)
    start = time.monotonic()
    with started(tmp_path) as (process, _):
        assert process.stderr is not None
        for line in process.stderr:
            if b'"event":"ready"' in line:
                break
        whole = time.monotonic() - start
    for point in range(POINTS):
        with started(tmp_path) as (process, child):
            until(lambda: catches_sigterm(child), "the handler", every=0.001)
            time.sleep(whole * 0.95 * point / POINTS)
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
            # PID 1 ignores a signal without a handler: a lost one would leave the server running.
            process.wait(60)
