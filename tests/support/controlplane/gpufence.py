"""The real `gpufence serve` as a process, with certificates of the real `gpufence certs issue`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from controlplane.errors import ControlPlaneError
from controlplane.process import Process

COMMAND = Path(sys.executable).with_name("gpufence")
"""The console script of the environment that runs this."""
QUICK = (sys.executable, "-P", str(Path(__file__).with_name("quick.py")))
"""The same command, which takes options for shorter waits."""
HOST = "127.0.0.1"
START_WITHIN = 30.0


class Server:
    """A webhook on free ports of the loopback interface; as a context manager it runs in the block.

    It logs JSON to `log`, and takes `flags` in addition to its addresses and files.
    """

    def __init__(
        self,
        directory: Path,
        flags: Sequence[str] = (),
        command: Sequence[str | Path] = (COMMAND,),
    ) -> None:
        self._certificates = directory / "certs"
        self.issue = ["certs", "issue", "--ip", HOST, "--out", str(self._certificates)]
        """The arguments of the command that issues the certificates."""
        self.serve = [
            "serve",
            *("--host", HOST, "--port", "0"),
            *("--metrics-port", "0"),
            *("--tls-cert", str(self._certificates / "tls.crt")),
            *("--tls-key", str(self._certificates / "tls.key")),
            # No drain: the one client knows of the end.
            *("--drain-seconds", "0"),
            *flags,
        ]
        """The arguments of the command that serves."""
        self.process = Process("gpufence", [*command, *self.serve], directory / "gpufence.log")
        self._ready: dict[str, Any] = {}

    @property
    def url(self) -> str:
        """Scheme, host and port, as the API server calls it."""
        return f"https://{HOST}:{self._ready['port']}"

    @property
    def metrics_port(self) -> int:
        port: int = self._ready["metricsPort"]
        return port

    @property
    def manifests(self) -> list[str]:
        """The arguments of the command that prints the webhook configurations."""
        return ["manifests", "--url", self.url, "--ca-file", str(self._certificates / "ca.crt")]

    @property
    def authority(self) -> bytes:
        """The CA of the serving certificate (PEM)."""
        return (self._certificates / "ca.crt").read_bytes()

    def issue_certificates(self) -> None:
        done = subprocess.run([COMMAND, *self.issue], capture_output=True, text=True, check=False)
        if done.returncode:
            output = f"{done.stdout}{done.stderr}"
            raise ControlPlaneError(f"gpufence {' '.join(self.issue)} failed:\n{output}")

    def start(self) -> None:
        """Start it, and wait until it serves.

        Raises:
            ControlPlaneError: it does not; the message shows the end of its log.
        """
        # The log keeps the events of an earlier start.
        earlier = len(self._ready_events()) if self.process.log.exists() else 0
        self.process.start()
        self.process.wait(lambda: self._unready(earlier), START_WITHIN)

    def stop(self) -> None:
        self.process.stop()

    def events(self) -> list[dict[str, Any]]:
        """Return what it has logged."""
        lines = self.process.log_lines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def _ready_events(self) -> list[dict[str, Any]]:
        return [event for event in self.events() if event.get("event") == "ready"]

    def _unready(self, earlier: int) -> str:
        ready = self._ready_events()[earlier:]
        self._ready = ready[-1] if ready else {}
        return "" if ready else "it has not logged that it is ready"

    def __enter__(self) -> Self:
        self.issue_certificates()
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
