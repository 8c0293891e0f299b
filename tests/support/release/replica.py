"""Self-managing replicas: `gpufence serve` without certificate files.

They listen on loopback addresses, behind a `Service` (release.service) that stands for the real
one.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from cryptography import x509

from controlplane.cluster import ControlPlane
from controlplane.errors import ControlPlaneError
from controlplane.gpufence import QUICK
from controlplane.ports import free_ports
from controlplane.process import Process

START_WITHIN = 60.0
WRONG_CLOCK = Path(__file__).with_name("wrong_clock.py")


class Replica:
    """A replica as a process with its own ports; as a context manager it runs during the block.

    Its clock is ahead by `clock_ahead`.
    """

    def __init__(
        self,
        cluster: ControlPlane,
        directory: Path,
        url: str,
        flags: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        clock_ahead: timedelta = timedelta(),
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.port, self.metrics_port = free_ports(2)
        command = list(QUICK)
        if clock_ahead:
            command = [sys.executable, str(WRONG_CLOCK), str(clock_ahead.total_seconds())]
        self.command = [
            *command,
            "serve",
            *("--host", "127.0.0.1", "--port", str(self.port)),
            *("--metrics-port", str(self.metrics_port)),
            *("--kubeconfig", str(cluster.kubeconfig), "--register=true", "--url", url),
            *("--poll-seconds", "0.5", "--lease-seconds", "3", "--drain-seconds", "1"),
            *flags,
        ]
        log = directory / f"replica-{self.port}.log"
        self.process = Process("gpufence", self.command, log, environ=environ, stop_within=20)

    def start(self) -> None:
        """Start it, and do not wait."""
        self.process.start()

    def wait(self) -> None:
        """Wait until it is ready.

        Raises:
            ControlPlaneError: it does not become so; the message shows the end of its log.
        """
        self.process.wait(self.unready, START_WITHIN)

    def stop(self) -> None:
        """Stop it as Kubernetes does: SIGTERM, then SIGKILL after a timeout."""
        self.process.stop()

    def kill(self) -> None:
        """End it as a lost node does: SIGKILL, without a drain."""
        self.process.kill()

    def unready(self) -> str:
        """Return "" if it is ready, else the text of /readyz."""
        try:
            status, text = self.get("/readyz")
        except (OSError, http.client.HTTPException) as error:
            return str(error)
        return "" if status == 200 else text

    def get(self, path: str) -> tuple[int, str]:
        """GET from the metrics port; return status and text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=5)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def metric(self, series: str) -> float:
        """Return the value of one series, as written in /metrics; 0 if it is missing."""
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(f"{series} "):
                return float(line.rpartition(" ")[2])
        return 0.0

    def certificate(self, ca: bytes) -> x509.Certificate:
        """Return the certificate that it serves to a client that trusts only `ca` (PEM).

        Raises:
            ssl.SSLError: the client does not trust it.
        """
        context = ssl.create_default_context(cadata=ca.decode())
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=10) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as connection,
        ):
            der = connection.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the events of that name that it has logged."""
        logged = [json.loads(line) for line in self.process.log_lines() if line.startswith("{")]
        return [event for event in logged if event["event"] == name]

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def wait_for(replicas: Sequence[Replica]) -> None:
    """Wait until all of them are ready; they start at the same time."""
    try:
        for replica in replicas:
            replica.wait()
    except ControlPlaneError:
        for replica in replicas:
            replica.stop()
        raise
