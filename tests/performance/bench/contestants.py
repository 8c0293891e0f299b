"""Starts the webhooks that the benchmarks compare, and sends load to them."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certificates import issue
from controlplane import cache
from controlplane.gobuild import GoModule
from controlplane.gpufence import COMMAND
from controlplane.ports import free_ports
from controlplane.process import Process
from deploy.dockerfile import image_environment

GPUFENCE, GO = "gpufence", "Go controller-runtime"
HOST = "127.0.0.1"
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_GO_PACKAGES = {"webhook": "./webhook", "load": "./load"}


def binaries() -> dict[str, Path]:
    """Return the paths of the Go webhook and of the load generator; build them once.

    Raises:
        ControlPlaneError: no Go toolchain is available, or the build failed.
    """
    directory = Path(__file__).with_name("peers")
    module = GoModule(directory, _GO_PACKAGES, ldflags="-s -w", what="the benchmarks' peers")
    return module.binaries(_GO_PACKAGES, cache.root().with_name("bench"))


@dataclass(frozen=True)
class Contestant:
    """A webhook that serves `/mutate` and `/validate` at `url`."""

    name: str
    process: Process
    port: int

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self.port}"

    def cpu_seconds(self) -> float:
        """Return the CPU time that it has used so far."""
        return cpu_seconds(self.process)

    def memory(self) -> float:
        """Return its resident memory in MiB."""
        assert self.process.pid is not None
        return resident_mebibytes(self.process.pid)


def cpu_seconds(process: Process) -> float:
    """Return the CPU time that a process has used so far."""
    # After the command's name, which may hold anything, in parentheses.
    stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / _CLOCK_TICKS


def resident_mebibytes(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    resident = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert resident is not None
    return int(resident[1]) / 1024


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """Pin the processes that the block starts to one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def running(
    directory: Path, core: int | None = None, flags: Sequence[str] = ()
) -> Iterator[list[Contestant]]:
    """Run all contestants, optionally pinned to one core, gpufence with `flags`."""
    certificates = directory / "certs"
    issue(["localhost", HOST], certificates)
    with ExitStack() as stack:
        with nullcontext() if core is None else pinned(core):
            contestants = _start(directory, certificates, flags, stack)
        for contestant in contestants:
            contestant.process.wait(silent(contestant.port))
        yield contestants


def _start(
    directory: Path, certificates: Path, flags: Sequence[str], stack: ExitStack
) -> list[Contestant]:
    started = []
    for name, command in commands(certificates, flags).items():
        [port] = free_ports(1)
        environ = os.environ | image_environment()
        process = Process(name, command(port), directory / f"{name}.log", environ=environ)
        process.start()
        stack.callback(process.stop)
        started.append(Contestant(name, process, port))
    return started


def commands(
    certificates: Path, flags: Sequence[str]
) -> dict[str, Callable[[int], Sequence[str | Path]]]:
    """Return the command of each contestant, given a port."""
    tls = ("--tls-cert", certificates / "tls.crt", "--tls-key", certificates / "tls.key")
    peer = binaries()["webhook"]
    return {
        GPUFENCE: lambda port: [
            *(COMMAND, "serve", "--host", HOST, "--port", str(port), *tls),
            *("--metrics-port", "0", *flags),
        ],
        GO: lambda port: [peer, "-host", HOST, "-port", str(port), "-certs", certificates],
    }


def silent(port: int) -> Callable[[], str]:
    """Return a probe of a server's port."""

    def probe() -> str:
        try:
            socket.create_connection((HOST, port), 1).close()
        except OSError as error:
            return str(error)
        return ""

    return probe


def load(url: str, ca_file: Path, body: Path, **options: Any) -> dict[str, Any]:
    """Send `body` to `url` again and again, and return the load generator's report."""
    flags = [f"-{name}={value}" for name, value in options.items()]
    flags += [f"-url={url}", f"-ca={ca_file}", f"-body={body}"]
    completed = subprocess.run(
        [binaries()["load"], *flags], capture_output=True, text=True, check=False
    )
    if completed.returncode:
        raise RuntimeError(f"the load generator failed on {url}: {completed.stderr.strip()}")
    report: dict[str, Any] = json.loads(completed.stdout)
    unexpected = report["statuses"].keys() - {"200", "201"}
    if unexpected:
        raise RuntimeError(f"{url} responded with HTTP status {', '.join(sorted(unexpected))}")
    return report
