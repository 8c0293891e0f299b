"""Counts the bytecodes that Python executes for a review, by module: `python -m bench.bytecodes`.

A profile that does not depend on the load of the machine. Needs Python 3.12 (`sys.monitoring`).
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from datetime import date
from types import CodeType
from typing import Any

import uvloop

from bench import reviews
from bench.engine import PATHS
from reviewing import default_policy
from webhook.admission.handler import Admission
from webhook.http.edge import Edge
from webhook.http.listener import REVIEWS, Listener
from webhook.metrics.replica import Metrics

CASES: tuple[reviews.Case, ...] = ("gpu-pod", "plain-pod")
_WARM_UP = 100
_COUNTED = 10
_TOOL = 3
"""The identifier of this tool for `sys.monitoring`; 0 to 2 and 5 have other uses."""


class _Transport(asyncio.Transport):
    """A connection without a socket: what is written completes `answered`."""

    def __init__(self) -> None:
        super().__init__(extra={"peername": ("127.0.0.1", 1)})
        self.answered = asyncio.Event()

    def write(self, data: Any) -> None:
        self.answered.set()

    def is_closing(self) -> bool:
        return False

    def resume_reading(self) -> None:
        pass


async def count(case: reviews.Case, endpoint: reviews.Endpoint) -> Counter[str]:
    """Return the bytecodes of one request over HTTP, by module, on Python 3.12 and newer."""
    policy = default_policy()
    metrics = Metrics(policy, "default")
    admission = Admission(policy, metrics, date.today)
    edge = Edge(admission, metrics, timeout_seconds=10)
    transport = _Transport()
    protocol = Listener(edge.handle, REVIEWS)()
    protocol.connection_made(transport)
    body = reviews.body(case, endpoint)
    head = (
        f"POST {PATHS[endpoint]}?timeout=10s HTTP/1.1\r\nHost: gpufence.gpufence.svc\r\n"
        "User-Agent: kube-apiserver-admission\r\nAccept: application/json, */*\r\n"
        f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\n\r\n"
    )

    async def review() -> None:
        transport.answered.clear()
        protocol.data_received(head.encode() + body)
        await transport.answered.wait()

    for _ in range(_WARM_UP):
        await review()
    executed: Counter[CodeType] = Counter()
    if sys.version_info >= (3, 12):
        monitoring = sys.monitoring
        event = monitoring.events.INSTRUCTION
        monitoring.use_tool_id(_TOOL, "bench")
        monitoring.register_callback(_TOOL, event, lambda code, _offset: executed.update((code,)))
        monitoring.set_events(_TOOL, event)
        for _ in range(_COUNTED):
            await review()
        monitoring.set_events(_TOOL, 0)
        monitoring.free_tool_id(_TOOL)
    modules: Counter[str] = Counter()
    for code, number in executed.items():
        modules[_module(code)] += number
    return Counter({module: number // _COUNTED for module, number in modules.items()})


def _module(code: CodeType) -> str:
    """Return the module of gpufence, or the top-level package of a library."""
    path = code.co_filename.removesuffix(".py").split("/")
    for package in ("policies", "webhook"):
        if package in path and "site-packages" not in path:
            return ".".join(path[path.index(package) :])
    return path[path.index("site-packages") + 1] if "site-packages" in path else "Python's library"


def main() -> int:
    """Print a table for each case; return 2 on a Python that cannot count."""
    if sys.version_info < (3, 12):
        print("counting bytecodes needs Python 3.12 or newer", file=sys.stderr)
        return 2
    for case in CASES:
        for endpoint in reviews.endpoints(case):
            modules = uvloop.run(count(case, endpoint))
            print(f"\n{case} {PATHS[endpoint]}: {modules.total()} bytecodes\n")
            for module, number in modules.most_common():
                print(f"{number:6}  {number / modules.total():4.0%}  {module}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
