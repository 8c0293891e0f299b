"""A webhook that allows everything, and records the requests that it receives."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from certificates import issue

MARK = "gpufence.dev/test"
"""Annotation that identifies an object; of a workload, not of its template."""


class Recorder:
    """Serves `/mutate` and `/validate` on a free port; as a context manager, in the block."""

    def __init__(self, directory: Path) -> None:
        ca = issue(["localhost"], directory)
        self.authority = ca.certificate_pem
        self.endpoints: defaultdict[str, set[str]] = defaultdict(set)
        """By the mark of an object, the paths at which requests for it arrived."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body in two segments would wait 40 ms for the client's acknowledgement.
            wbufsize = -1

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                recorder.note(self.path.partition("?")[0], body["request"])
                response = {"uid": body["request"]["uid"], "allowed": True}
                response |= recorder.response(body["request"])
                response_body = json.dumps({**body, "request": None, "response": response}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(response_body)))
                self.end_headers()
                self.wfile.write(response_body)

            def log_message(self, *_: Any) -> None:
                """Stay silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"https://localhost:{self._server.server_address[1]}"

    def note(self, path: str, request: dict[str, Any]) -> None:
        metadata = request["object"].get("metadata") or {}
        self.endpoints[(metadata.get("annotations") or {}).get(MARK, "")].add(path)

    def response(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return what the response has besides the verdict: nothing, but tests override it."""
        return {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Patching(Recorder):
    """The webhook of another product, which patches Pods."""

    def patch(self, obj: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the JSON Patch for a Pod."""
        raise NotImplementedError

    def response(self, request: dict[str, Any]) -> dict[str, Any]:
        patch = self.patch(request["object"])
        encoded = base64.b64encode(json.dumps(patch).encode()).decode()
        return {"patchType": "JSONPatch", "patch": encoded} if patch else {}

    def configuration(
        self, name: str, selected: dict[str, str], reinvocation: str
    ) -> dict[str, Any]:
        """Return a configuration for the Pods of namespaces with these labels."""
        bundle = base64.b64encode(self.authority).decode()
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
        webhook = {
            "name": "other.example.com",
            "clientConfig": {"url": f"{self.url}/mutate", "caBundle": bundle},
            "rules": [{**rule, "operations": ["CREATE"]}],
            "namespaceSelector": {"matchLabels": selected},
            "reinvocationPolicy": reinvocation,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        return {"metadata": {"name": name}, "webhooks": [webhook]}
