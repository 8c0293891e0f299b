"""Several processes for one replica: `gpufence serve --workers N`.

The process that was started listens, forks the workers, and starts those again that die; it answers
nothing itself. A worker is a whole server (``server.replica``) that was handed its sockets. All
take connections from the same one, so that an address is bound once, whoever dies, and an idle
worker takes what a busy one does not come to.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from dataclasses import replace
from time import monotonic

from webhook.cli.policy.exit_status import describe_exit
from webhook.http.listener import listen
from webhook.logs import configure, event
from webhook.metrics.gathered import LOOPBACK
from webhook.server import replica as server
from webhook.server.options import ServeOptions, Worker

_AWAITED = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)

_log = logging.getLogger("gpufence")


def serve(options: ServeOptions) -> int:
    """Serve, with as many workers as ``options`` say, and return the exit status.

    One worker is this process itself. Of several, this returns in each of them as well, as
    ``os.fork`` does: with the status of that worker.

    Raises:
        ListenError: (webhook.http.listener) an address cannot be listened on.
        CertificateError, ConfigurationError, PolicyUnusableError: as ``replica.serve``.
    """
    if options.workers == 1:
        return server.serve(options)
    configure(options.log_format, sys.stderr)
    supervisor = _Supervisor(options)
    # Blocked, they wait until they are asked for; none is lost, and no handler is ever run.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    worker = supervisor.supervise()
    if worker is None:
        return supervisor.status
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return server.serve(_of_worker(options, worker))


def _of_worker(options: ServeOptions, worker: Worker) -> ServeOptions:
    """Return what a worker is told: the first one alone speaks for all of them to the cluster.

    It takes part in the election of who registers, and counts the estate.
    """
    if worker.number == 0:
        return replace(options, worker=worker)
    cluster = options.cluster and replace(options.cluster, register=False)
    return replace(options, worker=worker, cluster=cluster, estate=None)


class _Supervisor:
    """Starts workers, passes signals on to them, and waits for them."""

    def __init__(self, options: ServeOptions) -> None:
        """Listen on every address; all sockets stay open for as long as the process lives."""
        self.status = 0
        """The exit status, once nothing runs any more."""
        self._settled_seconds = options.settled_seconds
        self._operations = listen(options.metrics_host, options.metrics_port, "metrics-port")
        self._reviews = listen(options.host, options.port, "port")
        self._own = [listen(LOOPBACK, 0, "workers") for _ in range(options.workers)]
        # Nothing is ever written: it ends when the last who could write does.
        self._lifeline, self._alive = os.pipe()
        self._running: dict[int, tuple[int, float]] = {}
        self._ending = False

    def supervise(self) -> Worker | None:
        """Return what a worker is, in a process that is one, and None here when all have ended."""
        missing = list(range(len(self._own)))
        while missing or self._running:
            for number in missing:
                pid = os.fork()
                if not pid:
                    return self._worker(number)
                self._running[pid] = number, monotonic()
                event(_log, logging.INFO, "worker started", worker=number, pid=pid)
            missing = []
            caught = signal.sigwait(_AWAITED)
            if caught == signal.SIGCHLD:
                missing = self._ended()
            else:
                self._end(caught)
        return None

    def _worker(self, number: int) -> Worker:
        # A Ctrl-C in a terminal is for the supervisor, who passes it on: two would cut the drain.
        os.setpgid(0, 0)
        os.close(self._alive)
        return Worker(
            number=number,
            reviews=self._reviews,
            operations=self._operations,
            own=self._own,
            lifeline=self._lifeline,
        )

    def _ended(self) -> list[int]:
        """Take note of workers that have ended; return which are to be started again."""
        missing = []
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            # As process 1 of a container, it is handed the children of others as well.
            if pid in self._running:
                number, began = self._running.pop(pid)
                if not self._ending:
                    code = os.waitstatus_to_exitcode(status)
                    if self._starts_again(number, code, monotonic() - began):
                        missing.append(number)
        return [] if self._ending else missing

    def _starts_again(self, number: int, code: int, lived: float) -> bool:
        """Say what becomes of a worker that ended by itself, and end all where that is no use."""
        early = lived < self._settled_seconds
        event(
            _log,
            logging.ERROR,
            "worker ended",
            worker=number,
            problem=describe_exit(code, "use fewer workers"),
            seconds=round(lived, 1),
            next="all end, as nothing says that another try would do better"
            if early
            else "it is started again",
        )
        if early:
            # As a shell has it: 128 and the number of the signal.
            self.status = code if code >= 0 else 128 - code
            self._end(signal.SIGTERM)
        return not early

    def _end(self, number: int) -> None:
        self._ending = True
        for pid in self._running:
            os.kill(pid, number)
