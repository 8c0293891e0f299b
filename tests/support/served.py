"""A webhook on loopback for tests: without TLS, in the test's event loop."""

from __future__ import annotations

import io
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from aiohttp.test_utils import RawTestServer, TestClient

from policies.policy import Policy
from reviewing import encode
from webhook.serve.admission.handler import Admission, Cluster
from webhook.serve.http.edge import Edge, operations_handler
from webhook.serve.metrics.replica import Metrics

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)

Client = TestClient[web.BaseRequest, None]


@dataclass
class Hook:
    """A running webhook and its parts."""

    client: Client
    operations: Client
    metrics: Metrics
    edge: Edge

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        """POST a review, given as bytes or as JSON; return status and body.

        The body is parsed if it is JSON.
        """
        data = io.BytesIO(body if isinstance(body, bytes) else encode(body))
        headers = {"Content-Type": "application/json"}
        async with self.client.post(path, data=data, headers=headers) as response:
            text = await response.text()
            if response.content_type == "application/json":
                return response.status, json.loads(text)
            return response.status, text

    async def response(self, path: str, body: Any) -> Any:
        """POST a review and return the AdmissionResponse."""
        status, answer = await self.post(path, body)
        assert status == 200, answer
        return answer["response"]

    async def metric(self, name: str) -> dict[str, float]:
        """Return the samples of a metric: their labels as they are written, and their values."""
        async with self.operations.get("/metrics") as response:
            lines = (await response.text()).splitlines()
        samples = (
            line.rsplit(" ", 1) for line in lines if line.startswith((f"{name}{{", f"{name} "))
        )
        return {labels.removeprefix(name): float(value) for labels, value in samples}


MakeHook = Callable[[Policy], Awaitable[Hook]]


async def serve_policy(
    stack: AsyncExitStack, policy: Policy, cluster: Cluster | None = None
) -> Hook:
    """Serve a policy until the stack is closed."""
    metrics = Metrics(policy, "test")
    admission = Admission(policy, metrics, today=NOW.date, cluster=cluster)
    edge = Edge(admission, metrics, timeout_seconds=10, followed="gpufence")
    reviews: Client = TestClient(RawTestServer(edge.handle))
    pages = operations_handler(metrics, lambda: "shutting down" if edge.draining else "")
    operations: Client = TestClient(RawTestServer(pages))
    await stack.enter_async_context(reviews)
    await stack.enter_async_context(operations)
    return Hook(reviews, operations, metrics, edge)
