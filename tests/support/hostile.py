"""An API server with large objects that a tenant can create, made when they are sent."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from controlplane import kubeconfig

JSON = dict[str, Any]

BYTES = 1_400_000
"""The size of an object in etcd, which accepts 1.5 MB."""
ESCAPED = "\\u003c"
"""What an API server sends for ``<``."""

LARGE_TEXT = f'"{ESCAPED * BYTES}"'
"""1.4 MB of ``<`` as JSON."""

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


def each(*makes: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """Return a function that makes objects of these kinds in turn."""
    return lambda number: makes[number % len(makes)](number)


def pod_with_less_than_signs() -> Callable[[int], bytes]:
    """A Pod with a variable of 1.4 MB of ``<``: 8.4 MB of JSON."""
    return filled(_pod(_container(env=[{"name": "A", "value": "FILLING"}])), LARGE_TEXT)


def pod_with_labels() -> Callable[[int], bytes]:
    """A Pod with 70,000 labels, and an owner that does not exist."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r"}
    references = [{**owner, "controller": True}]
    labels = ",".join(f'"label-{number}":"value-{number}"' for number in range(70_000))
    pod = _pod(_container(), labels="FILLING", ownerReferences=references)
    return filled(pod, f"{{{labels}}}")


def pod_with_findings() -> Callable[[int], bytes]:
    """A Pod with 490 containers, each with findings."""
    container = json.dumps(_container(securityContext={"privileged": True}))
    pod = _pod(_container())
    pod["spec"]["containers"] = "FILLING"
    return filled(pod, _listed(container, 490))


def deployment_with_variables() -> Callable[[int], bytes]:
    """A Deployment with 110,000 variables."""
    return filled(_deployment(_container(env="FILLING")), _listed('{"name":"a"}', 110_000))


def gpu_deployment_with_less_than_signs() -> Callable[[int], bytes]:
    """A Deployment with 1.4 MB of ``<`` that requests a GPU."""
    env = [{"name": "A", "value": "FILLING"}]
    gpu = {"limits": {"nvidia.com/gpu": "1"}}
    return filled(_deployment(_container(env=env, resources=gpu)), LARGE_TEXT)


def _listed(item: str, count: int) -> str:
    return f"[{','.join([item] * count)}]"


def _container(**more: Any) -> JSON:
    return {"name": "c", "image": "i", **more}


def _metadata(**more: Any) -> JSON:
    return {"name": "o-NUMBER", "namespace": "team", "uid": "NUMBER", **more}


def _pod(container: JSON, **metadata: Any) -> JSON:
    return {"metadata": _metadata(**metadata), "spec": {"containers": [container]}, "status": {}}


def _deployment(container: JSON) -> JSON:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    selector = {"matchLabels": {"a": "b"}}
    return {"metadata": _metadata(), "spec": {"selector": selector, "template": template}}


class HostileServer:
    """Serves collections as an API server does, in pages.

    All other collections are empty. ``objects`` are the number of objects, and how to make one, by
    path.
    """

    def __init__(self, objects: dict[str, tuple[int, Callable[[int], bytes]]]) -> None:
        self.objects = objects
        self.lists: dict[str, list[int]] = {}
        """The limits of the pages that were requested, by path."""
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
        return kubeconfig.write(path, self.url, {"token": "any"})

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        count, make = self.objects.get(request.path, (0, lambda _number: b""))
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        if request.path == "/apis":
            group = {"name": "resource.k8s.io", "preferredVersion": {"version": "v1"}}
            return web.json_response({"groups": [group]})
        await response.prepare(request)
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


async def peak_of(program: str, config: Path) -> int:
    """Run a Python program, and return its peak memory in bytes.

    The program gets the kubeconfig as its argument. At its end it calls ``peak``, which is defined
    for it.
    """
    source = f"{_PEAK}\n{program}"
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-c", source, str(config), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await running.communicate()
    return int(output) * 1024


_PEAK = """
from pathlib import Path

def peak():
    print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""
