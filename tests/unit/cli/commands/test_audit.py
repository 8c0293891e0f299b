"""``gpufence audit --policy-reports`` where a report cannot be written."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from running import Run

TRESPASSER = {
    "metadata": {"name": "peek", "namespace": "web", "uid": "uid-1"},
    "spec": {
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "containers": [{"name": "web", "image": "nginx:1.29"}],
    },
}


class _ApiServer(ThreadingHTTPServer):
    """Has one Pod, knows reports, and answers each creation with one status."""

    refusal = 409


class _Handler(BaseHTTPRequestHandler):
    server: _ApiServer

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        items = [TRESPASSER] if path == "/api/v1/pods" else []
        self._answer(200, {"metadata": {}, "items": items, "groups": []})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(self.server.refusal, {"message": "cannot be created"})

    def log_message(self, *_: object) -> None:
        """Say nothing: the command's output is what is looked at."""

    def _answer(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def api_server() -> Iterator[_ApiServer]:
    with _ApiServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (409, "Error: Report web/gpufence-uid-1, about Pod peek, lacks the label"),
        (
            403,
            "Error: In namespace web, the API server rejects reports: cannot be created (HTTP 403)",
        ),
        (500, "Error: cannot be created (HTTP 500)"),
    ],
)
def test_audit_results_are_printed_if_a_policy_report_cannot_be_written(
    gpufence: Run, api_server: _ApiServer, tmp_path: Path, refusal: int, expected: str
) -> None:
    api_server.refusal = refusal
    cluster = {"server": f"http://127.0.0.1:{api_server.server_port}"}
    config = {
        "current-context": "fake",
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
        "clusters": [{"name": "fake", "cluster": cluster}],
        "users": [{"name": "fake", "user": {"token": "first"}}],
    }
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    done = gpufence("audit", "--policy-reports", "--kubeconfig", kubeconfig)
    assert "denied   Pod web/peek" in done.out
    assert expected in done.err
    assert done.status == 2
