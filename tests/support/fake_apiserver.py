"""A fake API server: objects, lists in pages, watches, conflicts, and failures on demand.

``FakeApiServer`` serves on loopback. ``FakeKubeApi`` is a client of one that needs no socket, for
tests in which two writers meet at a chosen moment. What the real one does is what tests/e2e is for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from webhook.kube.client import KubeApi
from webhook.kube.clock import ServerClock
from webhook.kube.errors import ApiError, ClusterError
from webhook.registration.registrar import KINDS

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
    method: str = "GET"

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

    ``served`` are the paths of the collections that can be listed. Unless a test makes it fail, the
    protocol works as that of the real API server, as far as gpufence uses it.
    """

    def __init__(self, *served: str) -> None:
        self.asked: list[Asked] = []
        self.objects: dict[str, JSON] = {}
        """Every object by its path."""
        self.refuse: dict[str, tuple[int, str]] = {}
        """Paths that are answered with a Status: its code and its message."""
        self.refuse_watch: dict[str, tuple[int, str]] = {}
        """The same for watches only."""
        self.forbidden: set[str] = set()
        """Resources that a SubjectAccessReview denies."""
        self.held: dict[str, asyncio.Event] = {}
        """Paths that are not answered until the event is set."""
        self.before_page: Callable[[str, int], None] = lambda _path, _offset: None
        """Is called before a page of a list is answered."""
        self.accepted = ""
        """The one bearer token that is not answered with 401; empty for any."""
        self.gone_as_event = True
        """Whether a version that is too old is an ERROR in the watch, or an HTTP status."""
        self.admit: Callable[[JSON], JSON] = lambda obj: obj
        """What other admission plugins make of each object that is written."""
        self._served = {*served, *KINDS.values()}
        self._listed: tuple[object, list[JSON]] = (None, [])
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
        app.router.add_route("*", "/{path:.*}", self._serve)
        # A watch whose client has gone is over, and not only once there is something to tell it.
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop: open connections break, new ones fail."""
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
        self._served.add(path)

    def put(self, collection: str, obj: JSON) -> JSON:
        """Create or update an object, and send the event to its watches."""
        kept: JSON = json.loads(json.dumps(obj))
        path = f"{collection}/{kept['metadata']['name']}"
        self._change(collection, "MODIFIED" if path in self.objects else "ADDED", kept)
        self.objects[path] = kept
        return kept

    def remove(self, collection: str, name: str) -> None:
        self._change(collection, "DELETED", self.objects.pop(f"{collection}/{name}"))

    def respond(
        self, method: str, path: str, query: Mapping[str, str], body: JSON | None = None
    ) -> JSON:
        """Answer a request that is not a watch.

        Raises:
            ApiError: as the API server would answer.
        """
        if refused := self.refuse.get(path):
            raise ApiError(*refused)
        found = self.objects.get(path)
        if method == "GET":
            if path in self._served:
                return self._list(path, query)
            if found is None:
                raise ApiError(404, f"{path} not found")
            return found
        if method == "POST":
            assert body is not None
            if body.get("kind") == "SubjectAccessReview":
                resource = body["spec"]["resourceAttributes"]["resource"]
                return {**body, "status": {"allowed": resource not in self.forbidden}}
            created = f"{path}/{body['metadata']['name']}"
            if created in self.objects:
                raise ApiError(409, f"{created} already exists")
            return body if query.get("dryRun") else self._store(path, body)
        collection, _, name = path.rpartition("/")
        if method == "PATCH" and "force" in query:
            return self._store(collection, {**(found or {}), **(body or {})})
        if found is None:
            raise ApiError(404, f"{path} not found")
        if method == "DELETE":
            self.remove(collection, name)
            return {"kind": "Status", "status": "Success"}
        if method == "PATCH":
            return self._store(collection, _merged(found, body or {}))
        assert body is not None
        if body["metadata"].get("resourceVersion") != found["metadata"]["resourceVersion"]:
            raise ApiError(409, "the object has been modified")
        return self._store(collection, body)

    def _store(self, collection: str, obj: JSON) -> JSON:
        uid = f"{collection}/{obj['metadata']['name']}"
        admitted = self.admit({**obj, "metadata": {"uid": uid, **obj["metadata"]}})
        return self.put(collection, admitted)

    def forget(self) -> None:
        """Compact: no watch can begin from a version before this one."""
        self._version += 1
        self._oldest = self._version
        self._history.clear()

    def bookmark(self, collection: str) -> None:
        """Send every watch a bookmark with the new version."""
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
        asked = Asked(path, query, request.headers.get("Authorization", ""), request.method)
        self.asked.append(asked)
        if held := self.held.get(path):
            await held.wait()
        if self.accepted and asked.authorization != f"Bearer {self.accepted}":
            return _status(401, "Unauthorized")
        if asked.is_watch and (refused := self.refuse_watch.get(path)):
            return _status(*refused)
        if asked.is_watch and path in self._served and path not in self.refuse:
            return await self._watch(request)
        body = await request.read()
        try:
            sent = json.loads(body) if body else None
            return web.json_response(self.respond(request.method, path, query, sent))
        except ApiError as error:
            return _status(error.status, error.message)

    def _list(self, path: str, query: Mapping[str, str]) -> JSON:
        version, offset = self._version, 0
        if token := query.get("continue"):
            version, offset = map(int, token.split("/"))
        self.before_page(path, offset)
        if version < self._oldest:
            raise ApiError(410, "The provided continue parameter is too old")
        objects = self._of(path, query.get("fieldSelector", ""), query.get("labelSelector", ""))
        end = offset + int(query.get("limit") or len(objects))
        metadata = {"resourceVersion": str(version)}
        if end < len(objects):
            metadata["continue"] = f"{version}/{end}"
        return {"kind": "List", "metadata": metadata, "items": objects[offset:end]}

    def _of(self, collection: str, fields: str, labels: str) -> list[JSON]:
        """Return the objects of a collection, which are the same for each page of a list."""
        key = collection, fields, labels, self._version, len(self.objects)
        if self._listed[0] != key:
            found = [
                obj
                for path, obj in self.objects.items()
                if collection in _collections_of(path)
                and _is_selected(obj, fields)
                and _is_labeled(obj, labels)
            ]
            self._listed = key, found
        return self._listed[1]

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
            raise TimeoutError(f"waited {within:g} s for {what}")
        await asyncio.sleep(0.005)


def _collections_of(path: str) -> tuple[str, str]:
    """Return the collection of an object, and the one of all namespaces."""
    collection = path.rpartition("/")[0]
    before, _, rest = collection.partition("/namespaces/")
    return collection, f"{before}/{rest.partition('/')[2]}"


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


def _is_labeled(obj: JSON, labels: str) -> bool:
    """Return whether a label selector selects the object; only ``=`` is supported."""
    found = obj["metadata"].get("labels") or {}
    wanted = (each.partition("=") for each in filter(None, labels.split(",")))
    return all(found.get(key) == value for key, _, value in wanted)


def _merged(target: JSON, patch: JSON) -> JSON:
    """Return the result of a JSON merge patch (RFC 7386)."""
    merged = dict(target)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = _merged(merged.get(key) or {}, value)
        else:
            merged[key] = value
    return merged


def _line(kind: str, obj: JSON) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def _status(code: int, message: str) -> web.Response:
    status = {"kind": "Status", "apiVersion": "v1", "code": code, "message": message}
    return web.json_response(status, status=code)


@dataclass
class _Answer:
    """As much of aiohttp's response as a client reads."""

    body: bytes

    async def read(self) -> bytes:
        return self.body


class _Clock(ServerClock):
    """Shows the time that a test has set for the API server."""

    def __init__(self, api: FakeKubeApi) -> None:
        super().__init__()
        self._api = api

    def server_time(self) -> datetime | None:
        return self._api.now


class FakeKubeApi(KubeApi):
    """A client of a ``FakeApiServer`` that needs no socket."""

    def __init__(self, server: FakeApiServer | None = None) -> None:
        self.clock = _Clock(self)
        self.server = server or FakeApiServer()
        self.error: ClusterError | None = None
        """Raised by every request."""
        self.write_error: ClusterError | None = None
        """Raised by every write."""
        self.now: datetime | None = None
        """The time of the API server."""
        self._between: Callable[[], Awaitable[object]] | None = None

    @property
    def objects(self) -> dict[str, JSON]:
        return self.server.objects

    def between(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do ``work`` after the next read, before its reader can write."""
        self._between = work

    async def close(self) -> None:
        """Nothing is open."""

    @asynccontextmanager
    async def _request(  # type: ignore[override]
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        _headers: object,
        _limits: object,
        body: bytes | None = None,
    ) -> AsyncIterator[_Answer]:
        if error := self.error or (self.write_error if method != "GET" else None):
            raise error
        sent = None if body is None else json.loads(body)
        try:
            answer = json.dumps(self.server.respond(method, path, query, sent)).encode()
        finally:
            work, self._between = (
                (self._between, None) if method == "GET" else (None, self._between)
            )
            if work is not None:
                await work()
        yield _Answer(answer)
