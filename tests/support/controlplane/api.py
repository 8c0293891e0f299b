"""A minimal client of the API server: a call takes milliseconds, kubectl a hundred."""

from __future__ import annotations

import http.client
import json
import ssl
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

Object = dict[str, Any]
"""A Kubernetes object as the API's JSON has it."""


class ApiError(Exception):
    """The API server responded with a Status of failure; the message is the Status'."""

    def __init__(self, status: int, body: Object) -> None:
        super().__init__(body.get("message", f"HTTP {status}"))
        self.status = status
        """The HTTP status, for example 403."""
        self.body = body


@dataclass(frozen=True)
class Api:
    """Talks HTTPS to one server on the loopback interface, with a client certificate or without.

    It keeps connections: a handshake costs both sides more than most requests.
    """

    port: int
    authority: Path
    client: tuple[Path, Path] | None = None
    timeout: float = 30.0
    user: str = ""
    """The user to impersonate; empty: the client's own."""
    group: str = "system:masters"
    """The group of that user: by default, that of cluster administrators."""
    _context: ssl.SSLContext = field(init=False, repr=False, compare=False)
    _idle: deque[http.client.HTTPSConnection] = field(
        init=False, repr=False, compare=False, default_factory=deque
    )

    def __post_init__(self) -> None:
        context = ssl.create_default_context(cafile=str(self.authority))
        if self.client is not None:
            context.load_cert_chain(*self.client)
        object.__setattr__(self, "_context", context)
        weakref.finalize(self, _close, self._idle)

    def request(
        self,
        method: str,
        path: str,
        body: Object | list[Object] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """Send one request and return the object that comes back.

        `path` begins with a slash and may carry a query. A patch needs its `content_type`, such as
        `application/merge-patch+json`.

        Raises:
            ApiError: the server rejects the request.
            OSError: the server cannot be reached.
            ValueError: an object is put back that was read. Others may have changed it meanwhile,
                and the server would reject it now and then: patch it.
        """
        if method == "PUT" and isinstance(body, dict) and "resourceVersion" in body["metadata"]:
            raise ValueError(f"patch {path} instead of putting back what was read")
        data = None if body is None else json.dumps(body).encode()
        status, content = self._exchange(method, path, data, content_type)
        response: Object = json.loads(content)
        if status >= 400:
            raise ApiError(status, response)
        return response

    def refusal(self, path: str, obj: Object, method: str = "POST") -> str:
        """Return why the server rejects an object or a patch (dry run), "" if it accepts it."""
        kind = "strategic-merge-patch+json" if method == "PATCH" else "json"
        try:
            self.request(method, f"{path}?dryRun=All", obj, f"application/{kind}")
        except ApiError as error:
            return str(error)
        return ""

    def text(self, path: str) -> str:
        """Return the body of a GET, regardless of its status: /readyz, /metrics."""
        return self._exchange("GET", path, None, "")[1].decode()

    def unhealthy(self, path: str) -> str:
        """Return "" if a health endpoint is healthy, else its message."""
        try:
            status, text = self._exchange("GET", path, None, "")
        except (OSError, http.client.HTTPException) as error:
            return f"{path}: {error}"
        return "" if status == http.HTTPStatus.OK else f"{path}: {text.decode()}"

    def _exchange(
        self, method: str, path: str, body: bytes | None, content_type: str
    ) -> tuple[int, bytes]:
        headers = {"Accept": "application/json"} if content_type else {}
        if body is not None:
            headers["Content-Type"] = content_type
        if self.user:
            headers |= {"Impersonate-User": self.user, "Impersonate-Group": self.group}
        while True:
            try:
                connection, used = self._idle.pop(), True
            except IndexError:
                connection, used = self._connection(), False
            try:
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                result = response.status, response.read()
            except BaseException as error:
                connection.close()
                # The server closed an idle connection or was restarted: nothing was read.
                if used and isinstance(error, (ConnectionError, ssl.SSLError)):
                    continue
                raise
            if response.will_close:
                connection.close()
            else:
                self._idle.append(connection)
            return result

    def _connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, context=self._context, timeout=self.timeout
        )


def _close(connections: deque[http.client.HTTPSConnection]) -> None:
    while connections:
        connections.pop().close()
