"""An API server with large objects that a tenant can create, made when they are sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from fake_apiserver import write_kubeconfig

JSON = dict[str, Any]

BYTES = 1_400_000
"""The size of an object in etcd, which accepts 1.5 MB."""
ESCAPED = "\\u003c"
"""What an API server sends for ``<``."""

_FILLING = '"FILLING"'
_VERSION = "100"


def filled(obj: JSON, filling: str) -> Callable[[int], bytes]:
    """Return a function that makes the JSON of an object by its number.

    Of its strings, ``FILLING`` becomes ``filling``, and ``NUMBER`` the number.
    """
    before, _, after = json.dumps(obj).partition(_FILLING)
    middle = filling.encode()

    def make(number: int) -> bytes:
        first, second = (text.replace("NUMBER", str(number)).encode() for text in (before, after))
        return b"".join((first, middle, second))

    return make


def pod_with_less_than_signs() -> Callable[[int], bytes]:
    """A Pod with a variable of 1.4 MB of ``<``: 8.4 MB of JSON."""
    env = [{"name": "A", "value": "FILLING"}]
    return filled(_pod({"name": "c", "image": "i", "env": env}), f'"{ESCAPED * BYTES}"')


def pod_with_capabilities() -> Callable[[int], bytes]:
    """A Pod that adds 500,000 capabilities."""
    capabilities = {"capabilities": {"add": "FILLING"}}
    adding = "[" + ",".join(['"A"'] * 500_000) + "]"
    return filled(_pod({"name": "c", "image": "i", "securityContext": capabilities}), adding)


def claim_with_selectors() -> Callable[[int], bytes]:
    """A ResourceClaim with 130 CEL selectors of 10 KiB each."""
    request = {"name": "a", "exactly": {"deviceClassName": "gpu.nvidia.com", "selectors": 0}}
    request["exactly"]["selectors"] = "FILLING"  # type: ignore[index]
    selector = f'{{"cel":{{"expression":"{ESCAPED * 10_240}"}}}}'
    spec = {"devices": {"requests": [request]}}
    obj = {"metadata": {"name": "c-NUMBER", "namespace": "team"}, "spec": spec}
    return filled(obj, "[" + ",".join([selector] * 130) + "]")


def _pod(container: JSON) -> JSON:
    metadata = {"name": "p-NUMBER", "namespace": "team", "uid": "NUMBER"}
    return {"metadata": metadata, "spec": {"containers": [container]}, "status": {}}


class HostileServer:
    """Serves collections as an API server does: pages, and a watch with an event an object.

    All other collections are empty. ``objects`` are the number of objects, and how to make one, by
    path.
    """

    def __init__(self, objects: dict[str, tuple[int, Callable[[int], bytes]]]) -> None:
        self.objects = objects
        self.lists: dict[str, list[int]] = {}
        """The limits of the pages that were requested, by path."""
        self.watched: set[str] = set()
        """Paths whose watch has sent all of its events, or was closed by the client."""
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[HostileServer]:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    def kubeconfig(self, path: Path) -> Path:
        return write_kubeconfig(path, self.url)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        count, make = self.objects.get(request.path, (0, lambda _number: b""))
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        if request.path == "/apis":
            return web.json_response({"groups": []})
        await response.prepare(request)
        if "watch" in request.query:
            try:
                for number in range(count):
                    await response.write(b'{"type":"MODIFIED","object":' + make(number) + b"}\n")
            finally:
                self.watched.add(request.path)
            await asyncio.sleep(60)
            return response
        limit = int(request.query.get("limit", 1_000_000))
        self.lists.setdefault(request.path, []).append(limit)
        first = int(request.query.get("continue", 0))
        last = min(count, first + limit)
        rest = str(last) if last < count else ""
        head = {"resourceVersion": _VERSION, **({"continue": rest} if rest else {})}
        await response.write(b'{"metadata":' + json.dumps(head).encode() + b',"items":[')
        for number in range(first, last):
            await response.write((b"," if number > first else b"") + make(number))
        await response.write(b"]}")
        return response
