"""A fake API server with a cluster of any size: `python -m bench.fleet PORT NODES PODS`.

Objects are made when they are listed, with the size of real ones, so that a million Pods take no
memory. Every tenth node has GPUs: half of these by device plugin, half by DRA. GPU Pods are 6 % of
the Pods, and belong to Jobs; others belong to Deployments, and to a DaemonSet on the GPU nodes.
`POST /-/churn` changes nodes, `/-/compact` forgets all versions, `/-/silence` holds events back.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from aiohttp import web

HOST = "127.0.0.1"
NODES = "/api/v1/nodes"
HOSTNAME = "kubernetes.io/hostname"
WEBHOOKS = "/apis/admissionregistration.k8s.io/"
_KEPT = 20_000
_PODS_OF_JOB, _PODS_OF_DEPLOYMENT = 8, 100
_TEXT = "x" * 1500
"""Stands for managedFields, the images of a node, and other fields that gpufence skips."""
_NEVER = "2026-01-01T00:00:00Z"

Render = Callable[[int, int], dict[str, object]]
"""Makes the object with this number; the second number counts its changes."""


@dataclass
class Objects:
    """A collection: how many objects it has, and how each is made."""

    count: int
    render: Render
    changes: dict[int, int] = field(default_factory=dict)
    """By number, how often an object has changed."""

    def text(self, number: int, version: int) -> str:
        obj = self.render(number, self.changes.get(number, 0))
        metadata = obj["metadata"]
        assert isinstance(metadata, dict)
        metadata |= {"resourceVersion": str(version), "creationTimestamp": _NEVER}
        metadata.setdefault("uid", f"{metadata['name']}-uid")
        return msgspec.json.encode(obj).decode()


def cluster(nodes: int, pods: int) -> dict[str, Objects]:
    """Return the collections of a cluster, by path."""
    gpu_nodes, gpu_pods = nodes // 10, pods * 6 // 100
    agents = (pods - gpu_pods) // 20
    jobs = -(-gpu_pods // _PODS_OF_JOB)
    deployments = -(-(pods - gpu_pods - agents) // _PODS_OF_DEPLOYMENT)

    def pod(number: int, _changes: int) -> dict[str, object]:
        if number < gpu_pods:
            job = number // _PODS_OF_JOB
            owner, place = ("batch/v1", "Job", f"job-{job}"), number % gpu_nodes * 10
            return _pod(f"job-{job}-{number}", owner, f"n{place}", gpus=1)
        number -= gpu_pods
        if number < agents:
            name = f"agent-{number}"
            place = number % gpu_nodes * 10
            return _pod(name, ("apps/v1", "DaemonSet", "agent"), f"n{place}")
        number -= agents
        name = f"web-{number // _PODS_OF_DEPLOYMENT}"
        place = number % nodes // 10 * 10 + 1 + number % 9
        return _pod(f"{name}-x-{number}", ("apps/v1", "ReplicaSet", f"{name}-x"), f"n{place}")

    return {
        NODES: Objects(nodes, _node),
        "/api/v1/namespaces": Objects(1, lambda *_: {"metadata": {"name": "ml"}}),
        "/api/v1/pods": Objects(pods, pod),
        "/apis/apps/v1/daemonsets": Objects(
            bool(pods), lambda *_: _workload("agent", {"template": {"spec": _spec()}})
        ),
        "/apis/apps/v1/deployments": Objects(
            deployments, lambda n, _: _workload(f"web-{n}", {"template": {"spec": _spec()}})
        ),
        "/apis/apps/v1/replicasets": Objects(
            deployments,
            lambda n, _: _workload(
                f"web-{n}-x",
                {"replicas": _PODS_OF_DEPLOYMENT, "template": {"spec": _spec()}},
                _reference("apps/v1", "Deployment", f"web-{n}"),
            ),
        ),
        "/apis/batch/v1/jobs": Objects(
            jobs, lambda n, _: _workload(f"job-{n}", {"template": {"spec": _spec(gpus=1)}})
        ),
        "/apis/karpenter.sh/v1/nodeclaims": Objects(nodes * 3 // 10, _node_claim),
        "/apis/karpenter.sh/v1/nodepools": Objects(3, lambda n, _: {"metadata": {"name": f"p{n}"}}),
        "/apis/resource.k8s.io/v1/deviceclasses": Objects(1, _device_class),
        "/apis/resource.k8s.io/v1/resourceslices": Objects(gpu_nodes // 2, _slice),
    }


def _node(number: int, changes: int) -> dict[str, object]:
    name, is_gpu = f"n{number}", number % 10 == 0
    is_published = number % 20 == 0
    labels = {
        HOSTNAME: name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/region": "r1",
        "topology.kubernetes.io/zone": f"z{number % 3}",
        "node.kubernetes.io/instance-type": f"t{number % 40}",
        "karpenter.sh/nodepool": f"p{number % 3}",
        "karpenter.sh/capacity-type": "on-demand",
        "example.com/rack": f"r{number // 32}",
        "example.com/memory": str(number % 5000),
        "example.com/health": str(changes),
        **({"nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": "8"} if is_gpu else {}),
    }
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    devices = {"nvidia.com/gpu": "8"} if is_gpu and not is_published else {}
    return {
        "metadata": {"name": name, "labels": labels, "annotations": {"example.com/text": _TEXT}},
        "spec": {"taints": [taint] if is_gpu else []},
        "status": {
            "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", **devices},
            "images": [{"names": [_TEXT]}],
        },
    }


def _node_claim(number: int, _changes: int) -> dict[str, object]:
    is_gpu = number % 10 == 0
    labels = {
        "karpenter.sh/nodepool": f"p{number % 3}",
        "topology.kubernetes.io/zone": f"z{number % 3}",
        "node.kubernetes.io/instance-type": f"t{number % 40}",
        **({"nvidia.com/gpu.present": "true"} if is_gpu else {}),
    }
    devices = {"nvidia.com/gpu": "8"} if is_gpu else {}
    wanted = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["t1", "t2"]}]
    return {
        "metadata": {"name": f"c{number}", "labels": labels, "managedFields": _TEXT},
        "spec": {"requirements": wanted, "nodeClassRef": {"group": "karpenter.k8s.aws"}},
        "status": {"allocatable": {"cpu": "64", "memory": "512Gi", **devices}},
    }


def _device_class(_number: int, _changes: int) -> dict[str, object]:
    expression = "device.driver == 'gpu.nvidia.com'"
    return {
        "metadata": {"name": "gpu.nvidia.com"},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def _slice(number: int, _changes: int) -> dict[str, object]:
    name = f"n{number * 20}"
    devices = [
        {
            "name": f"gpu-{gpu}",
            "attributes": {
                "type": {"string": "gpu"},
                "productName": {"string": "NVIDIA H100 80GB HBM3"},
                "uuid": {"string": f"GPU-{number}-{gpu}"},
                "driverVersion": {"version": "580.65.6"},
                "minor": {"int": gpu},
            },
            "capacity": {"memory": {"value": "81559Mi"}},
        }
        for gpu in range(8)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": name, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"{name}-gpu", "managedFields": _TEXT}, "spec": spec}


def _reference(version: str, kind: str, name: str) -> list[dict[str, object]]:
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": f"{name}-uid"}
    return [{**owner, "controller": True}]


def _workload(
    name: str, spec: dict[str, object], owners: list[dict[str, object]] | None = None
) -> dict[str, object]:
    metadata = {"name": name, "namespace": "ml", "managedFields": _TEXT}
    return {"metadata": {**metadata, "ownerReferences": owners or []}, "spec": spec}


def _spec(gpus: int = 0) -> dict[str, object]:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    main = {
        "name": "main",
        "image": "registry.example/team/main:1.2.3",
        "env": [{"name": f"VARIABLE_{number}", "value": "value"} for number in range(10)],
        "resources": {"requests": {"cpu": "2", "memory": "4Gi", **limits}, "limits": limits},
        "securityContext": security,
    }
    return {"containers": [main]}


def _pod(name: str, owner: tuple[str, str, str], node: str, gpus: int = 0) -> dict[str, object]:
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": _NEVER}
        for kind in ("PodScheduled", "Ready")
    ]
    metadata = {"name": name, "namespace": "ml", "managedFields": _TEXT}
    return {
        "metadata": {**metadata, "ownerReferences": _reference(*owner)},
        "spec": {**_spec(gpus), "nodeName": node},
        "status": {"phase": "Running", "conditions": conditions},
    }


class Fleet:
    """Serves the collections: pages of lists, and watches."""

    def __init__(self, collections: dict[str, Objects]) -> None:
        self._collections = collections
        self._version = self._oldest = 1
        self._history: deque[tuple[int, str, bytes]] = deque(maxlen=_KEPT)
        self._watches: dict[asyncio.Queue[bytes | None], str] = {}
        self._churn: asyncio.Task[None] | None = None
        self._silent_until = 0.0

    async def serve(self, port: int) -> None:
        app = web.Application()
        app.router.add_post("/-/{order}", self._order)
        app.router.add_get("/{path:.*}", self._get)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, HOST, port).start()
        await asyncio.Event().wait()

    async def _order(self, request: web.Request) -> web.Response:
        if request.match_info["order"] == "compact":
            self._version += 1
            self._oldest = self._version
            self._history.clear()
            for queue in self._watches:
                queue.put_nowait(None)
            return web.Response()
        if request.match_info["order"] == "silence":
            self._silent_until = time.monotonic() + float(request.query["seconds"])
            return web.Response()
        if self._churn is not None:
            self._churn.cancel()
        rate = float(request.query["rate"])
        changing = self._change(rate, adds="adds" in request.query)
        self._churn = asyncio.create_task(changing) if rate else None
        return web.Response()

    async def _change(self, rate: float, *, adds: bool) -> None:
        """Change so many nodes a second, or add them."""
        nodes = self._collections[NODES]
        began, done = time.monotonic(), 0
        while True:
            for _ in range(int((time.monotonic() - began) * rate) - done):
                number = nodes.count if adds else done * 7919 % nodes.count
                nodes.count += adds
                nodes.changes[number] = nodes.changes.get(number, 0) + 1
                done += 1
                self._version += 1
                kind = "ADDED" if adds else "MODIFIED"
                line = f'{{"type":"{kind}","object":{nodes.text(number, self._version)}}}\n'
                self._history.append((self._version, NODES, line.encode()))
                for queue, path in self._watches.items():
                    if path == NODES:
                        queue.put_nowait(line.encode())
            await asyncio.sleep(0.003)

    async def _get(self, request: web.Request) -> web.StreamResponse:
        path, query = request.path, request.query
        if path == "/version":
            return web.json_response({"major": "1", "minor": "37", "gitVersion": "v1.37.2"})
        if path == "/apis":
            return web.json_response({"groups": []})
        if path.startswith(WEBHOOKS):
            return web.json_response({"code": 404}, status=404)
        found = self._collections.get(path) or Objects(0, lambda *_: {})
        if "watch" in query:
            return await self._watch(request, int(query["resourceVersion"]))
        version, offset = self._version, 0
        if token := query.get("continue"):
            version, offset = map(int, token.split("/"))
        end = min(found.count, offset + int(query.get("limit", found.count)))
        items = ",".join(found.text(number, version) for number in range(offset, end))
        rest = f"{version}/{end}" if end < found.count else ""
        text = f'{{"metadata":{{"resourceVersion":"{version}","continue":"{rest}"}},"items":['
        return web.Response(text=f"{text}{items}]}}", content_type="application/json")

    async def _watch(self, request: web.Request, since: int) -> web.StreamResponse:
        if since < self._oldest:
            return web.json_response({"code": 410, "message": "too old version"}, status=410)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        for version, path, line in self._history:
            if version > since and path == request.path:
                queue.put_nowait(line)
        self._watches[queue] = request.path
        try:
            while (event := await queue.get()) is not None:
                await asyncio.sleep(max(0.0, self._silent_until - time.monotonic()))
                await response.write(event)
        finally:
            del self._watches[queue]
        return response


if __name__ == "__main__":
    port, *counts = map(int, sys.argv[1:])
    asyncio.run(Fleet(cluster(*counts)).serve(port))
