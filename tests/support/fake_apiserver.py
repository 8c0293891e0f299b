"""An API server that fails on demand: lists in pages, watches, and what can become of either."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

JSON = dict[str, Any]

NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
DEVICE_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims"
CLAIM_TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaimtemplates"


@dataclass(frozen=True)
class Asked:
    """A request that has arrived."""

    path: str
    query: dict[str, str]
    authorization: str

    @property
    def is_watch(self) -> bool:
        return "watch" in self.query


@dataclass(eq=False)
class _Watch:
    path: str
    request: web.Request
    lines: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)


class FakeApiServer:
    """Serves collections on loopback; its port stays the same over a restart.

    `served` are the paths of the collections; objects are found below them by name. Everything that
    is not said here to fail works as the real one's protocol does, as far as it is used.
    """

    def __init__(self, *served: str) -> None:
        self.asked: list[Asked] = []
        self.refuse: dict[str, tuple[int, str]] = {}
        """Paths that are answered with a Status: its code and its message."""
        self.refuse_watch: dict[str, tuple[int, str]] = {}
        """The same for watches only."""
        self.held: dict[str, asyncio.Event] = {}
        """Paths that are not answered until the event is set."""
        self.before_page: Callable[[str, int], None] = lambda _path, _offset: None
        """Is called before a page of a list is answered."""
        self.accepted = ""
        """The one bearer token that is not answered with 401; empty for any."""
        self.gone_as_event = True
        """Whether a version that is too old is an ERROR in the watch, or an HTTP status."""
        self._objects: dict[str, dict[str, JSON]] = {path: {} for path in served}
        self._history: list[tuple[int, str, str, JSON]] = []
        self._version = 100
        self._oldest = 0
        self._watches: set[_Watch] = set()
        self._runner: web.AppRunner | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def version(self) -> str:
        return str(self._version)

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._serve)
        # A watch whose client has gone is over, and not only once there is something to tell it.
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Go away: open connections break, new ones are refused."""
        self.cut()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
            # A transport that was closed lets go of its socket in the loop's next turn.
            await asyncio.sleep(0)

    def kubeconfig(self, path: Path, credential: str = "first") -> Path:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "fake", "user": {"token": credential}}],
        }
        path.write_text(yaml.safe_dump(config))
        return path

    def serve(self, path: str) -> None:
        """Serve one more collection, as after a definition was created."""
        self._objects.setdefault(path, {})

    def put(self, collection: str, obj: JSON) -> None:
        """Create or update an object, and tell whoever watches."""
        kept = json.loads(json.dumps(obj))
        name = kept["metadata"]["name"]
        kind = "MODIFIED" if name in self._objects[collection] else "ADDED"
        self._change(collection, kind, kept)
        self._objects[collection][name] = kept

    def remove(self, collection: str, name: str) -> None:
        self._change(collection, "DELETED", self._objects[collection].pop(name))

    def forget(self) -> None:
        """Compact: no watch can begin from a version before this one."""
        self._version += 1
        self._oldest = self._version
        self._history.clear()

    def bookmark(self, collection: str) -> None:
        """Tell whoever watches that the version has moved on."""
        self._version += 1
        self.send(collection, _line("BOOKMARK", {"metadata": {"resourceVersion": self.version}}))

    def send(self, collection: str, line: bytes) -> None:
        """Write into the open watches, whatever it is."""
        for watch in self._watching(collection):
            watch.lines.put_nowait(line)

    def end(self, collection: str) -> None:
        """End the open watches as if their time were over."""
        for watch in self._watching(collection):
            watch.lines.put_nowait(None)

    def cut(self) -> None:
        """Break all connections that a watch is on."""
        for watch in self._watches:
            if watch.request.transport is not None:
                watch.request.transport.abort()
        self._watches.clear()

    def watching(self, collection: str) -> int:
        """Return the number of open watches."""
        return sum(1 for _ in self._watching(collection))

    def lists(self, collection: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.path == collection and not asked.is_watch]

    def watches(self, collection: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.path == collection and asked.is_watch]

    def _watching(self, collection: str) -> Iterator[_Watch]:
        return (watch for watch in self._watches if watch.path == collection)

    def _change(self, collection: str, kind: str, obj: JSON) -> None:
        self._version += 1
        obj["metadata"]["resourceVersion"] = self.version
        self._history.append((self._version, collection, kind, obj))
        self.send(collection, _line(kind, obj))

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path, query = request.path, dict(request.query)
        asked = Asked(path, query, request.headers.get("Authorization", ""))
        self.asked.append(asked)
        if held := self.held.get(path):
            await held.wait()
        if self.accepted and asked.authorization != f"Bearer {self.accepted}":
            return _status(401, "Unauthorized")
        if refused := self.refuse.get(path) or (asked.is_watch and self.refuse_watch.get(path)):
            return _status(*refused)
        if path in self._objects:
            return await self._watch(request) if asked.is_watch else self._list(path, query)
        collection, _, name = path.rpartition("/")
        if obj := self._objects.get(collection, {}).get(name):
            return web.json_response(obj)
        return _status(404, f"{path} not found")

    def _list(self, path: str, query: JSON) -> web.StreamResponse:
        version, offset = self._version, 0
        if token := query.get("continue"):
            version, offset = map(int, token.split("/"))
        self.before_page(path, offset)
        if version < self._oldest:
            return _status(410, "The provided continue parameter is too old")
        fields = query.get("fieldSelector", "")
        objects = [obj for obj in self._objects[path].values() if _is_selected(obj, fields)]
        end = offset + int(query.get("limit") or len(objects))
        metadata = {"resourceVersion": str(version)}
        if end < len(objects):
            metadata["continue"] = f"{version}/{end}"
        return web.json_response(
            {"kind": "List", "metadata": metadata, "items": objects[offset:end]}
        )

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        message = f"too old resource version: {since}"
        gone = {"code": 410, "message": message, "metadata": {}}
        too_old = since < self._oldest
        if too_old and not self.gone_as_event:
            return _status(410, message)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if too_old:
            await response.write(_line("ERROR", {"kind": "Status", "status": "Failure", **gone}))
            return response
        watch = _Watch(request.path, request)
        for version, path, kind, obj in self._history:
            if version > since and path == request.path:
                watch.lines.put_nowait(_line(kind, obj))
        self._watches.add(watch)
        ends = time.monotonic() + int(request.query["timeoutSeconds"])
        try:
            # The time is over, or the connection is.
            with contextlib.suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(ends - time.monotonic()):
                    while (line := await watch.lines.get()) is not None:
                        await response.write(line)
        finally:
            self._watches.discard(watch)
        return response


async def eventually(look: Callable[[], object], what: str, within: float = 10.0) -> None:
    """Let the loop run until `look` returns something true.

    Raises:
        TimeoutError: it did not within so many seconds.
    """
    deadline = time.monotonic() + within
    while not look():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {within:g} s in vain for {what}")
        await asyncio.sleep(0.005)


def _is_selected(obj: JSON, fields: str) -> bool:
    """Tell whether a list with that field selector has the object; only ``!=`` is known here."""
    for requirement in filter(None, fields.split(",")):
        path, _, unwanted = requirement.partition("!=")
        value: Any = obj
        for key in path.split("."):
            value = value.get(key, {})
        if value == unwanted:
            return False
    return True


def _line(kind: str, obj: JSON) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def _status(code: int, message: str) -> web.Response:
    status = {"kind": "Status", "apiVersion": "v1", "code": code, "message": message}
    return web.json_response(status, status=code)
