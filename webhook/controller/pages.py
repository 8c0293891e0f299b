"""The pages of the controller: what kubelets and Prometheus read, without TLS."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.server import ThreadingHTTPServer

from prometheus_client import CollectorRegistry, MetricsHandler

State = Callable[[], tuple[bool, list[str]]]
"""Returns whether the controller is ready, and its problems, one line each."""

_SECONDS = 5.0
"""The longest silence of a client."""


class Pages(ThreadingHTTPServer):
    """Serves ``/healthz``, ``/readyz`` and ``/metrics`` in a thread; port 0 selects a free one."""

    daemon_threads = True

    def __init__(self, host: str, port: int, registry: CollectorRegistry, state: State) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), type("Handler", (_Handler,), {"registry": registry}))
        self.state = state
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self.server_port

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(MetricsHandler):
    timeout = _SECONDS
    server: Pages

    def do_GET(self) -> None:  # noqa: N802 - its name in the standard library
        path = self.path.partition("?")[0]
        if path == "/metrics":
            super().do_GET()
        elif path == "/healthz":
            self._answer(200, ["ok"])
        elif path == "/readyz":
            is_ready, problems = self.server.state()
            self._answer(200 if is_ready else 503, ["ok" if is_ready else "starting", *problems])
        else:
            self._answer(404, ["not found; the paths here are /healthz, /readyz, /metrics"])

    def _answer(self, status: int, lines: list[str]) -> None:
        body = "".join(f"{line}\n" for line in lines).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
