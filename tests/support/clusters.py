"""Cluster facts of a fake API server, for tests of `webhook.cluster` and its users."""

from __future__ import annotations

import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from fake_apiserver import FakeApiServer
from policies.facts import Facts, Request
from policies.kubernetes.workload import Workload
from policies.policy import Policy
from specs import JSON, default_spec, policy_of
from webhook.cluster.claims import LookupResult
from webhook.cluster.facts import ClusterFacts
from webhook.kube.client import KubeApi
from webhook.kube.kubeconfig import kubeconfig
from webhook.kube.reflector import Watches, WatchTiming
from webhook.serve.metrics.cluster import ClusterMetrics

Answer = Callable[[web.Request], Awaitable[web.Response]]

FAST = WatchTiming(
    watch_seconds=300.0,
    quiet_seconds=60.0,
    first_delay=0.01,
    longest_delay=0.05,
    missing_seconds=0.05,
)


class Clock:
    """A clock that advances only when a test advances it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Counts:
    """An observer that counts."""

    def __init__(self) -> None:
        self.restarts: Counter[str] = Counter()
        self.lookups: Counter[str] = Counter()

    def watch_restarted(self, resource: str) -> None:
        self.restarts[resource] += 1

    def claim_looked_up(self, result: LookupResult) -> None:
        self.lookups[result] += 1


def policy(**pool: Any) -> Policy:
    """Return the default policy with other fields for its pool."""
    spec = default_spec()
    spec["pools"][0] |= pool
    return policy_of(spec)


def node(
    name: str, labels: JSON | None = None, taints: Any = (), allocatable: JSON | None = None
) -> JSON:
    """Return a Node as the API has it, with parts that no rule reads."""
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"podCIDR": "10.0.0.0/24", "taints": list(taints)},
        "status": {
            "allocatable": {"cpu": "16", **(allocatable or {})},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "now"}],
        },
    }


def gpu_node(name: str) -> JSON:
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    return node(name, {"nvidia.com/gpu.present": "true"}, [taint], {"nvidia.com/gpu": "8"})


def named(name: str, labels: JSON | None = None) -> JSON:
    return {"metadata": {"name": name, "labels": labels or {}}}


@asynccontextmanager
async def facts_of(
    api: FakeApiServer,
    directory: Path,
    of: Policy | None = None,
    *,
    timing: WatchTiming = FAST,
    clock: Callable[[], float] = time.monotonic,
    observer: Counts | ClusterMetrics | None = None,
    **options: Any,
) -> AsyncIterator[ClusterFacts]:
    """Provide the facts of the fake's cluster, followed inside the block."""
    connection = KubeApi(kubeconfig(api.kubeconfig(directory / "kubeconfig")))
    watching: dict[str, Any] = {"clock": clock, "timing": timing}
    if observer is not None:
        watching["restarted"] = observer.watch_restarted
        options["looked_up"] = observer.claim_looked_up
    watches = Watches(connection, **watching)
    cluster = ClusterFacts(watches, of or policy(), **options)
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()


async def known(cluster: ClusterFacts, namespace: str = "ml") -> Facts:
    """Return the facts for a Pod without claims."""
    return await cluster.facts_for(Request(namespace=namespace), Workload({}), 1.0)


@asynccontextmanager
async def around_a_pod(
    directory: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[TestServer]:
    """Serve as the API server of a Pod's environment, with the key pair of the directory."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    server = TestServer(app)
    await server.start_server(ssl=context)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", server.host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    try:
        yield server
    finally:
        await server.close()
