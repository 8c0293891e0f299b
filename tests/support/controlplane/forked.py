"""Processes of gpufence that are forks of one process, in which it is imported already.

An import takes most of the CPU time of a start, and tests start hundreds of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import marshal
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from controlplane.process import Child, Process

QUICK = (sys.executable, "-P", str(Path(__file__).with_name("quick.py")))
"""The command `gpufence` with options for shorter waits."""
SOURCE = "GPUFENCE_SOURCE"
"""The variable with the checkout whose gpufence a process runs, if it is not this one."""
_PR_SET_PDEATHSIG = 1
_CONTEXT = multiprocessing.get_context("forkserver")
# Not the commands `serve` and `controller`: quick.py changes what they import.
_CONTEXT.set_forkserver_preload(
    [
        *("__main__", "kubernetes.config", "webhook.controller.process", "webhook.serve.replica"),
        *("webhook.tools.cli.main", "webhook.tools.cli.commands.check"),
        "webhook.tools.cli.commands.policy",
    ]
)
_CLIENT = f"""#!{sys.executable} -IS
import marshal, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(os.path.dirname(__file__) + "/socket")
    socket.send_fds(server, [b"-"], [0, 1, 2])
    server.sendall(marshal.dumps((sys.argv[1:], os.getcwd(), dict(os.environ))))
    server.shutdown(socket.SHUT_WR)
    sys.exit((server.recv(1) or b"\\x7f")[0])
"""
"""The command, as a client of the process that forks; 127 if its fork is lost."""


class Forked(Process):
    """A process of QUICK without the start of an interpreter; it calls `enter` before all else."""

    def __init__(
        self, *given: Any, enter: Callable[[], None] | None = None, **options: Any
    ) -> None:
        super().__init__(*given, **options)
        self._enter = enter

    def _child(self) -> Child:
        arguments = self.command[len(QUICK) :]
        given = (arguments, self.log, self.environ, self._enter)
        fork = _CONTEXT.Process(target=_run, args=given, daemon=True)
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


def _run(
    arguments: list[str],
    log: Path,
    environ: Mapping[str, str] | None,
    enter: Callable[[], None] | None = None,
) -> None:
    os.setsid()
    if enter is not None:
        enter()
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
    if source := os.environ.get(SOURCE):
        # The process that started this one ends it, and not the thread, which ends here.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        program = Path(source, "tests/support/controlplane/quick.py")
        environ = {**os.environ, "PYTHONPATH": source}
        command = [sys.executable, "-P", str(program), *arguments]
        os.execve(sys.executable, command, environ)  # noqa: S606 - no shell is wanted
    from controlplane import quick

    sys.argv[1:] = arguments
    sys.exit(quick.main())


@contextlib.contextmanager
def served(directory: Path) -> Iterator[Path]:
    """Have the command `gpufence` in a directory, each run of it a fork; yield its path."""
    directory.mkdir()
    path = directory / "gpufence"
    path.write_text(_CLIENT)
    path.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "socket"))
        listener.listen()
        threading.Thread(target=_accept, args=(listener,), daemon=True).start()
        yield path
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):  # It is closed.
        while True:
            client, _ = listener.accept()
            with client:
                _CONTEXT.Process(target=_answer, args=(client,), daemon=True).start()


def _answer(client: socket.socket) -> None:
    os.setsid()
    _, given, *_ = socket.recv_fds(client, 1, 3)
    for number, opened in enumerate(given):
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
    with client.makefile("rb") as received:
        arguments, directory, environ = marshal.loads(received.read())  # noqa: S302 - own data
    sys.argv = ["gpufence", *arguments]
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environ)
    from webhook.tools.cli.main import main

    client.send(bytes([main()]))
