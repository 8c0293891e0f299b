"""Processes of quick.py that are forks of one process, in which gpufence is imported already.

An import takes most of the CPU time of a start, and tests start a hundred of them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from multiprocessing.process import BaseProcess
from pathlib import Path

from controlplane.process import Child, Process

QUICK = (sys.executable, "-P", str(Path(__file__).with_name("quick.py")))
"""The command `gpufence` with options for shorter waits."""
_CONTEXT = multiprocessing.get_context("forkserver")
# Not the commands: quick.py changes what they import.
_CONTEXT.set_forkserver_preload(
    [
        *("__main__", "kubernetes.config", "webhook.controller.process", "webhook.serve.replica"),
        *("webhook.tools.cli.main", "webhook.tools.cli.options"),
    ]
)


class Forked(Process):
    """A process of QUICK without the start of an interpreter."""

    def _child(self) -> Child:
        arguments = self.command[len(QUICK) :]
        fork = _CONTEXT.Process(target=_run, args=(arguments, self.log, self.environ), daemon=True)
        fork.start()
        return _Fork(fork)


class _Fork:
    def __init__(self, fork: BaseProcess) -> None:
        self._fork = fork
        assert fork.pid is not None
        self.pid = fork.pid

    def poll(self) -> int | None:
        return self._fork.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._fork.join(timeout)
        if self._fork.exitcode is None:
            raise subprocess.TimeoutExpired("gpufence", timeout or 0)
        return self._fork.exitcode


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.killpg(0, signal.SIGKILL)


def _run(arguments: list[str], log: Path, environ: dict[str, str] | None) -> None:
    os.setsid()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for path, flags, streams in (
        (Path(os.devnull), os.O_RDONLY, (0,)),
        (log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, (1, 2)),
    ):
        opened = os.open(path, flags, 0o644)
        for stream in streams:
            os.dup2(opened, stream)
        os.close(opened)
    if environ is not None:
        os.environ.clear()
        os.environ.update(environ)
    from controlplane import quick

    sys.argv[1:] = arguments
    sys.exit(quick.main())
