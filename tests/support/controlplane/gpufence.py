"""The real `gpufence serve` and `gpufence controller` as processes on the loopback interface."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

from cryptography import x509

from certificates import issue
from controlplane.forked import QUICK, Forked
from controlplane.ports import free_ports
from controlplane.process import Process

COMMAND = Path(sys.executable).with_name("gpufence")
"""The console script of the environment that runs this."""
HOST = "127.0.0.1"


class _Gpufence:
    """A process of gpufence that serves metrics; as a context manager it runs during the block.

    It logs to a file in `directory`. The command QUICK itself is run as a fork, which calls `enter`
    first, and an equal one as a program.
    """

    def __init__(
        self,
        directory: Path,
        arguments: Sequence[str | Path],
        *,
        command: Sequence[str | Path] = QUICK,
        enter: Callable[[], None] | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        [self.metrics_port] = free_ports(1)
        start = partial(Forked, enter=enter) if command is QUICK else Process
        self.process = start(
            "gpufence",
            [*command, *arguments, "--host", HOST, "--metrics-port", str(self.metrics_port)],
            directory / f"gpufence-{self.metrics_port}.log",
            stop_within=20,
        )

    def start(self) -> None:
        """Start it, and do not wait."""
        self.process.start()

    def wait(self) -> None:
        """Wait until it is ready.

        Raises:
            ControlPlaneError: it does not become so; the message shows the end of its log.
        """
        self.process.wait(self.unready)

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
            return str(error) or type(error).__name__
        return "" if status == 200 else text

    def get(self, path: str) -> tuple[int, str]:
        """GET from the metrics port; return status and text."""
        connection = http.client.HTTPConnection(HOST, self.metrics_port, timeout=5)
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

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the events of that name that it has logged."""
        logged = [json.loads(line) for line in self.process.log_lines() if line.startswith("{")]
        return [event for event in logged if event["event"] == name]

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Controller(_Gpufence):
    """`gpufence controller`; `flags` are arguments in addition to its address."""

    def __init__(self, directory: Path, flags: Sequence[str | Path], **options: Any) -> None:
        super().__init__(directory, ["controller", *flags], **options)


class Replica(_Gpufence):
    """`gpufence serve` with ports of its own; `flags` are arguments in addition to its address."""

    def __init__(self, directory: Path, flags: Sequence[str | Path], **options: Any) -> None:
        [self.port] = free_ports(1)
        self.url = f"https://{HOST}:{self.port}"
        """Scheme, host and port, as an API server calls it."""
        arguments = ["serve", "--port", str(self.port), *flags]
        super().__init__(directory, arguments, **options)

    def certificate(self, ca: bytes) -> x509.Certificate:
        """Return the certificate that it serves to a client that trusts only `ca` (PEM).

        Raises:
            ssl.SSLError: the client does not trust it.
        """
        context = ssl.create_default_context(cadata=ca.decode())
        with (
            socket.create_connection((HOST, self.port), timeout=10) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as connection,
        ):
            der = connection.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der)


class Server(Replica):
    """A replica with a certificate from files, and the CA that signed it.

    Its one client knows of its end, so it does not drain.
    """

    def __init__(self, directory: Path, flags: Sequence[str | Path] = ()) -> None:
        certificates = directory / "certs"
        self.issued = issue(["localhost", HOST], certificates)
        pair = ("--tls-cert", certificates / "tls.crt", "--tls-key", certificates / "tls.key")
        super().__init__(directory, [*pair, "--drain-seconds", "0", *flags])

    @property
    def authority(self) -> bytes:
        """The CA of the serving certificate (PEM)."""
        return self.issued.certificate_pem
