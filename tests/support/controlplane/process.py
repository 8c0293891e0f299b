"""A server process with a log file and a readiness probe."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from controlplane.errors import ControlPlaneError
from controlplane.poll import WITHIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LAUNCH = Path(__file__).with_name("launch.py")
POLL_EVERY = 0.05


class Probe(Protocol):
    def __call__(self) -> str:
        """Return "" once the process serves, else what is still missing."""


class Child(Protocol):
    """A process that was started; subprocess.Popen is one."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


class Process:
    """A server that ends with this process, even when it is killed (on Linux; see launch.py).

    Start it from a thread that outlives the server: for the kernel, the parent is the thread, not
    the process.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        environ: Mapping[str, str] | None = None,
        stop_within: float = 10.0,
    ) -> None:
        self.name = name
        self.command = [str(part) for part in command]
        self.log = log
        self.environ = environ
        self._stop_within = stop_within
        self._running: Child | None = None

    @property
    def pid(self) -> int | None:
        """The process id (the launcher's own: the command takes its place), None unless started."""
        return self._running.pid if self._running else None

    def start(self) -> None:
        """Start it. Its output is appended to the log file."""
        self._running = self._child()

    def _child(self) -> Child:
        launcher = [sys.executable, "-I", "-S", str(LAUNCH), str(os.getpid())]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*launcher, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environ,
                # A separate process group: this process handles Ctrl-C in the terminal, and what it
                # starts is stopped with it.
                start_new_session=True,
            )

    def wait(self, probe: Probe, within: float = WITHIN) -> None:
        """Wait until `probe` returns an empty string.

        Raises:
            ControlPlaneError: the process ended, or `within` seconds were not enough. The message
                shows the end of the log.
        """
        if self._running is None:
            raise ControlPlaneError(f"{self.name} is not started: call start() first")
        deadline = time.monotonic() + within
        while missing := probe():
            code = self._running.poll()
            if code is not None:
                raise ControlPlaneError(self._report(f"ended with exit code {code}"))
            if time.monotonic() > deadline:
                raise ControlPlaneError(self._report(f"not ready after {within:.0f} s: {missing}"))
            time.sleep(POLL_EVERY)

    def terminate(self) -> None:
        """Send SIGTERM, and do not wait."""
        # Another thread may be in `stop`.
        if (running := self._running) is not None:
            _signal_group(running.pid, signal.SIGTERM)

    def stop(self) -> None:
        """End the process and its children: SIGTERM, then SIGKILL after a timeout."""
        if self._running is None:
            return
        self.terminate()
        try:
            self._running.wait(timeout=self._stop_within)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process and its children at once: SIGKILL."""
        running, self._running = self._running, None
        if running is not None:
            _signal_group(running.pid, signal.SIGKILL)
            running.wait()

    def tail(self, lines: int = 25) -> str:
        """Return the end of the log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""

    def log_lines(self) -> list[str]:
        """Return the complete lines of the log."""
        return self.log.read_text(errors="replace").rpartition("\n")[0].splitlines()

    def _report(self, what: str) -> str:
        return (
            f"{self.name} {what}.\n"
            f"The end of its log ({self.log}):\n{self.tail() or '(nothing)'}\n"
            f"Its command: {' '.join(self.command)}"
        )


def runs(pid: int) -> bool:
    """Return whether a process runs (Linux); a zombie does not."""
    try:
        # The state comes after the command's name, which may hold anything: proc_pid_stat(5).
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _signal_group(group: int, number: signal.Signals) -> None:
    # The group may have ended. macOS returns EPERM for a group of zombies.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
