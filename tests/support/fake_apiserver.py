"""A fake API server: objects, paged lists, watches, conflicts, and failures on demand.

`FakeApiServer` serves on loopback. `FakeKubeApi` is its client without a socket, for tests in which
two writers conflict at a chosen moment. tests/e2e covers the behavior of the real API server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args

from aiohttp import web

from controlplane import kubeconfig
from specs import JSON, default_spec, fence_policy
from webhook.active_policy import PATH as FENCE_POLICIES
from webhook.controller.text.objects import FENCE_POLICY
from webhook.controller.watched import Objects
from webhook.kube.client import ServerClock
from webhook.kube.errors import ApiError, ClusterError
from webhook.kube.writer import KubeWriter
from webhook.registered import KINDS

NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
DEVICE_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
RESOURCE_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims"
CLAIM_TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaimtemplates"

Fault = Literal["delay", "too many requests", "server error", "reset", "silence"]
"""Late responses; 429 with Retry-After; 500; aborted connections; no responses."""

FAULTS: tuple[Fault, ...] = get_args(Fault)

DELAY_SECONDS = 0.1


@dataclass(frozen=True)
class RecordedRequest:
    """A request that the server received."""

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

    @property
    def fields(self) -> str:
        return self.request.query.get("fieldSelector", "")


class FakeApiServer:
    """Serves collections on loopback; its port survives a restart.

    `served` are the paths of the collections. Unless a test injects a failure, the protocol is that
    of the real API server, as far as gpufence uses it.
    """

    def __init__(self, *served: str) -> None:
        self.requests: list[RecordedRequest] = []
        self.objects: dict[str, JSON] = {}
        """Every object by its path."""
        self.errors: dict[str, tuple[int, str]] = {}
        """The Status (code, message) to return for a path."""
        self.watch_errors: dict[str, tuple[int, str]] = {}
        """The same, for watches only."""
        self.blocked: dict[str, asyncio.Event] = {}
        """Paths whose requests wait for the event."""
        self.before_page: Callable[[str, int], None] = lambda _path, _offset: None
        """A hook that runs before each page of a list."""
        self.accepted_bearer = ""
        """The only bearer token that the server accepts; empty: any."""
        self.gone_as_event = True
        """Whether a version that is too old is an ERROR event or an HTTP status."""
        self.admit: Callable[[JSON], JSON] = lambda obj: obj
        """Mutates each object that is written, as other admission plugins do."""
        self._served = {*served, *KINDS.values()}
        self._history: list[tuple[int, str, str, JSON]] = []
        self._version = 100
        self._oldest = 0
        self._watches: set[_Watch] = set()
        self._fault: Fault | None = None
        self._fault_ended = asyncio.Event()
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
        # End a watch when its client disconnects, not at the next event.
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop: open connections break, new ones fail."""
        self.abort_watches()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
            # A closed transport releases its socket in the next turn of the loop.
            await asyncio.sleep(0)

    @contextlib.contextmanager
    def in_thread(self) -> Iterator[None]:
        """Serve from a thread, for commands that have an event loop of their own."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        asyncio.run_coroutine_threadsafe(self.start(), loop).result()
        try:
            yield
        finally:
            asyncio.run_coroutine_threadsafe(self.stop(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def kubeconfig(self, path: Path, credential: str = "first") -> Path:
        return kubeconfig.write(path, self.url, {"token": credential})

    def serve(self, path: str) -> None:
        """Serve another collection, as after the creation of a CustomResourceDefinition."""
        self._served.add(path)

    def put(self, collection: str, obj: JSON) -> JSON:
        """Create or update an object, and send the event to its watches."""
        stored: JSON = json.loads(json.dumps(obj))
        path = f"{collection}/{stored['metadata']['name']}"
        self._change(collection, "MODIFIED" if path in self.objects else "ADDED", stored)
        self.objects[path] = stored
        return stored

    def follow(self, name: str, installation: str = "gpufence", spec: JSON | None = None) -> None:
        """Have replicas that follow a FencePolicy, by default one with the default policy."""
        self.serve(FENCE_POLICIES)
        self.put(FENCE_POLICIES, fence_policy(spec or default_spec(), name))
        metadata = {"name": installation, "annotations": {FENCE_POLICY: name}}
        for path in KINDS.values():
            self.put(path, {"metadata": metadata, "webhooks": [{"name": "pods.gpufence.dev"}]})

    def remove(self, collection: str, name: str) -> None:
        self._change(collection, "DELETED", self.objects.pop(f"{collection}/{name}"))

    def respond(
        self, method: str, path: str, query: Mapping[str, str], body: JSON | None = None
    ) -> JSON:
        """Respond to a request that is not a watch.

        Raises:
            ApiError: the server responds with an error.
        """
        if error := self.errors.get(path):
            raise ApiError(*error)
        existing = self.objects.get(path)
        if method == "GET":
            if path in self._served:
                return self._list(path, query)
            if existing is None:
                raise ApiError(404, f"{path} not found")
            return existing
        if method == "POST":
            assert body is not None
            if body.get("kind") == "SubjectAccessReview":
                return {**body, "status": {"allowed": True}}
            created = f"{path}/{body['metadata']['name']}"
            if created in self.objects:
                raise ApiError(409, f"{created} already exists")
            return body if query.get("dryRun") else self._store(path, body)
        collection, _, name = path.rpartition("/")
        if method == "PATCH" and "force" in query:
            return self._store(collection, {**(existing or {}), **(body or {})})
        if existing is None:
            raise ApiError(404, f"{path} not found")
        if method == "DELETE":
            self.remove(collection, name)
            return {"kind": "Status", "status": "Success"}
        if method == "PATCH":
            return self._store(collection, _merged(existing, body or {}))
        assert body is not None
        if body["metadata"].get("resourceVersion") != existing["metadata"]["resourceVersion"]:
            raise ApiError(409, "the object has been modified")
        return self._store(collection, body)

    def _store(self, collection: str, obj: JSON) -> JSON:
        uid = f"{collection}/{obj['metadata']['name']}"
        admitted = self.admit({**obj, "metadata": {"uid": uid, **obj["metadata"]}})
        return self.put(collection, admitted)

    def compact(self) -> None:
        """Compact: no watch can start from an older version."""
        self._version += 1
        self._oldest = self._version
        self._history.clear()

    def bookmark(self, collection: str) -> None:
        """Send every watch a bookmark with the new version."""
        self._version += 1
        self.send(collection, _line("BOOKMARK", {"metadata": {"resourceVersion": self.version}}))

    def send(self, collection: str, line: bytes) -> None:
        """Write raw bytes to the open watches."""
        for watch in self._watching(collection):
            watch.lines.put_nowait(line)

    def end(self, collection: str) -> None:
        """End the open watches, as after their timeout."""
        for watch in self._watching(collection):
            watch.lines.put_nowait(None)

    def abort_watches(self) -> None:
        """Abort the connections of all watches."""
        for watch in self._watches:
            _abort(watch.request)
        self._watches.clear()

    @contextlib.contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        """Have the fault in every request inside the block, and in the watches that are open."""
        self._fault = fault
        self._fault_ended.clear()
        if fault == "reset":
            self.abort_watches()
        try:
            yield
        finally:
            self._fault = None
            self._fault_ended.set()

    def watching(self, collection: str) -> int:
        """Return the number of open watches."""
        return sum(1 for _ in self._watching(collection))

    def lists(self, collection: str) -> list[RecordedRequest]:
        return [
            request
            for request in self.requests
            if request.path == collection and not request.is_watch
        ]

    def watches(self, collection: str) -> list[RecordedRequest]:
        return [
            request for request in self.requests if request.path == collection and request.is_watch
        ]

    def _watching(self, collection: str) -> Iterator[_Watch]:
        return (watch for watch in self._watches if watch.path == collection)

    def _change(self, collection: str, kind: str, obj: JSON) -> None:
        self._version += 1
        obj["metadata"]["resourceVersion"] = self.version
        self._history.append((self._version, collection, kind, obj))
        for watch in self._watching(collection):
            if _is_selected(obj, watch.fields):
                watch.lines.put_nowait(_line(kind, obj))

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path, query = request.path, dict(request.query)
        recorded = RecordedRequest(
            path, query, request.headers.get("Authorization", ""), request.method
        )
        self.requests.append(recorded)
        if event := self.blocked.get(path):
            await event.wait()
        if failed := await self._failed(request):
            return failed
        if self.accepted_bearer and recorded.authorization != f"Bearer {self.accepted_bearer}":
            return _status(401, "Unauthorized")
        if recorded.is_watch and (error := self.watch_errors.get(path)):
            return _status(*error)
        if recorded.is_watch and path in self._served and path not in self.errors:
            return await self._watch(request)
        if path == "/version" and path not in self.objects:
            return web.json_response({"major": "1", "minor": "37"})
        body = await request.read()
        try:
            data = json.loads(body) if body else None
            return web.json_response(self.respond(request.method, path, query, data))
        except ApiError as error:
            return _status(error.status, error.message, rest=error.rest)

    async def _failed(self, request: web.Request) -> web.Response | None:
        match self._fault:
            case "delay":
                await asyncio.sleep(DELAY_SECONDS)
            case "too many requests":
                message = "too many requests, please try again later"
                return _status(429, message, {"Retry-After": "1"})
            case "server error":
                return _status(500, "etcdserver: request timed out")
            case "reset":
                return _abort(request)
            case "silence":
                return await self._silence(request)
        return None

    async def _silence(self, request: web.Request) -> web.Response:
        await self._fault_ended.wait()
        # The client has disconnected.
        return _abort(request)

    def _list(self, path: str, query: Mapping[str, str]) -> JSON:
        version, offset = self._version, 0
        if token := query.get("continue"):
            version, offset = map(int, token.split("/"))
        self.before_page(path, offset)
        if version < self._oldest:
            rest = f"{self._version}/{offset}"
            raise ApiError(410, "The provided continue parameter is too old", rest=rest)
        objects = self._of(path, query.get("fieldSelector", ""), query.get("labelSelector", ""))
        end = offset + int(query.get("limit") or len(objects))
        metadata = {"resourceVersion": str(version)}
        if end < len(objects):
            metadata["continue"] = f"{version}/{end}"
        return {"kind": "List", "metadata": metadata, "items": objects[offset:end]}

    def _of(self, collection: str, fields: str, labels: str) -> list[JSON]:
        """Return the selected objects of a collection."""
        return [
            obj
            for path, obj in self.objects.items()
            if collection in _collections_of(path)
            and _is_selected(obj, fields)
            and (not labels or _is_labeled(obj, labels))
        ]

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
            if version > since and path == request.path and _is_selected(obj, watch.fields):
                watch.lines.put_nowait(_line(kind, obj))
        self._watches.add(watch)
        deadline = time.monotonic() + int(request.query["timeoutSeconds"])
        try:
            # The watch ends by its timeout, or by a disconnect.
            with contextlib.suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(deadline - time.monotonic()):
                    while (line := await watch.lines.get()) is not None:
                        if self._fault == "silence":
                            await self._silence(request)
                        await response.write(line)
        finally:
            self._watches.discard(watch)
        return response


async def eventually(look: Callable[[], object], what: str, within: float = 60.0) -> None:
    """Run the loop until `look` returns a true value.

    Raises:
        TimeoutError: it does not within `within` seconds.
    """
    deadline = time.monotonic() + within
    while not look():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {within:g} s for {what}")
        await asyncio.sleep(0.005)


def _collections_of(path: str) -> tuple[str, str]:
    """Return the collection of an object, in its namespace and in all namespaces."""
    collection = path.rpartition("/")[0]
    before, _, rest = collection.partition("/namespaces/")
    return collection, f"{before}/{rest.partition('/')[2]}"


def _is_selected(obj: JSON, fields: str) -> bool:
    """Return whether a field selector with `=` and `!=` selects the object."""
    for requirement in filter(None, fields.split(",")):
        path, _, compared = requirement.partition("=")
        value: Any = obj
        for key in path.rstrip("!").split("."):
            value = value.get(key, {})
        if (value == compared) == path.endswith("!"):
            return False
    return True


def _is_labeled(obj: JSON, labels: str) -> bool:
    """Return whether a label selector selects the object; only `=` is supported."""
    present = obj["metadata"].get("labels") or {}
    required = (term.partition("=") for term in filter(None, labels.split(",")))
    return all(present.get(key) == value for key, _, value in required)


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


def _status(
    code: int, message: str, headers: dict[str, str] | None = None, rest: str = ""
) -> web.Response:
    status = {"kind": "Status", "apiVersion": "v1", "code": code, "message": message}
    status["metadata"] = {"continue": rest} if rest else {}
    return web.json_response(status, status=code, headers=headers)


def _abort(request: web.Request) -> web.Response:
    """Break the connection off; the response that is returned goes nowhere."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


@dataclass
class _Response:
    """The part of aiohttp's response that the client reads."""

    body: bytes

    @property
    def content(self) -> _Response:
        return self

    async def read(self) -> bytes:
        return self.body

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self.body


class _Clock(ServerClock):
    """The clock of the API server, which a test sets."""

    def __init__(self, api: FakeKubeApi) -> None:
        super().__init__()
        self._api = api

    def now(self) -> datetime:
        return self._api.now or super().now()


class FakeKubeApi(KubeWriter):
    """A client of a `FakeApiServer` without a socket."""

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
        """Run `work` once, before the next write."""
        self._between = work

    async def close(self) -> None:
        """Nothing is open."""

    @asynccontextmanager
    async def request(  # type: ignore[override]
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        _headers: object,
        _limits: object,
        body: bytes | None = None,
    ) -> AsyncIterator[_Response]:
        if error := self.error or (self.write_error if method != "GET" else None):
            raise error
        data = None if body is None else json.loads(body)
        if method != "GET" and (work := self._between):
            self._between = None
            await work()
        yield _Response(json.dumps(self.server.respond(method, path, query, data)).encode())


class FakeObjects(Objects):
    """The objects of a `FakeKubeApi`, as if each was watched without a delay."""

    problem = ""

    def __init__(self, api: FakeKubeApi) -> None:
        self._api = api

    def watch(self, path: str) -> None:
        """Do nothing: each object is watched."""

    def read(self, path: str) -> JSON | None:
        found: JSON | None = json.loads(json.dumps(self._api.objects.get(path)))
        return found

    def written(self, path: str, obj: JSON | None) -> None:
        assert self.read(path) == obj
