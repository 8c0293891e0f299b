"""The architecture page names what exists, and a review takes the path that the page describes."""

from __future__ import annotations

import asyncio
import http.client
import re
import sys
import tomllib
from contextlib import AsyncExitStack
from functools import reduce
from importlib import import_module
from itertools import groupby, pairwise
from pathlib import Path
from pkgutil import iter_modules
from types import CodeType, FrameType
from typing import Any

import pytest

import webhook
from clusters import facts_of, gpu_node, policy
from fake_apiserver import DEVICE_CLASSES, NODES, FakeApiServer, eventually
from paths import PROJECT
from reviewing import encode, gpu_pod, review
from served import serve_policy
from webhook.http.listener import Listeners, listen, port_of

PAGE = (PROJECT / "docs" / "contribute" / "architecture.md").read_text()


def resolve(name: str) -> Any:
    """Return what a dotted name stands for."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            module = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        return reduce(getattr, parts[length:], module)
    raise AssertionError(name)


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r"`((?:webhook|policies|certs)\.[\w.]+)`", PAGE)))
)
def test_each_dotted_name_on_the_page_exists(name: str) -> None:
    assert resolve(name) is not None


def test_the_diagram_has_every_package_of_webhook() -> None:
    packages = {module.name for module in iter_modules(webhook.__path__) if module.ispkg}
    assert {name for name in packages if f"webhook.{name}" not in PAGE} == set()


MOST_CLIMBS = 4
OBSERVERS = ("webhook.metrics", "webhook.logs")
"""What is called on the way to count and to log, and decides nothing."""


async def test_a_review_calls_the_functions_of_the_page_in_order(tmp_path: Path) -> None:
    called = await path_of_a_review(tmp_path)
    table = PAGE.partition("## One GPU Pod")[2]
    steps = re.findall(r"(?m)^\| (\d+) \| `([\w.]+)`", table)
    assert [int(number) for number, _ in steps] == [*range(1, len(steps) + 1)]
    first_call = [called.index(code_of(resolve(name))) for _, name in steps]
    assert first_call == sorted(first_call), [name for _, name in steps]
    passed = (name for name in map(package_of, called) if name not in OBSERVERS)
    packages = [name for name, _ in groupby(passed)]
    climbs = [(one, other) for one, other in pairwise(packages) if floor(other) > floor(one)]
    print(f"\n{len(set(called))} functions; {' > '.join(packages)}")
    assert len(climbs) <= MOST_CLIMBS, climbs


async def path_of_a_review(directory: Path) -> list[CodeType]:
    """Send a GPU Pod to /mutate of a listening server, and return what that calls, in order."""
    api = FakeApiServer(NODES, DEVICE_CLASSES)
    api.put(NODES, gpu_node("gpu-1"))
    called: list[CodeType] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and is_ours(frame.f_code) and current_task() not in background:
            called.append(frame.f_code)

    async with AsyncExitStack() as stack:
        await api.start()
        stack.push_async_callback(api.stop)
        cluster = await stack.enter_async_context(facts_of(api, directory))
        await eventually(lambda: not cluster.unready(), "the cluster to be known")
        # They keep the cluster facts fresh.
        background = asyncio.all_tasks()
        hook = await serve_policy(stack, policy(), cluster)
        listeners, listening = Listeners(lambda _: None), listen("127.0.0.1", 0, "port")
        await listeners.serve(hook.edge.handle, listening)
        stack.push_async_callback(listeners.close)
        sys.setprofile(note)
        try:
            answer = await asyncio.to_thread(send, port_of(listening), encode(review(gpu_pod())))
        finally:
            sys.setprofile(None)
        assert b"patch" in answer
    return called


def current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        # In the thread that sends the review, or between two tasks.
        return None


def send(port: int, body: bytes) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", "/mutate", body, {"Content-Type": "application/json"})
        return connection.getresponse().read()
    finally:
        connection.close()


def is_ours(code: CodeType) -> bool:
    path = Path(code.co_filename)
    return path.is_relative_to(PROJECT / "webhook") or path.is_relative_to(PROJECT / "policies")


def code_of(function: Any) -> CodeType:
    """Return the code of a function, or that of a class' constructor."""
    made = vars(function)["__init__"] if isinstance(function, type) else function
    code: CodeType = made.__code__
    return code


def package_of(code: CodeType) -> str:
    first, second, *_ = Path(code.co_filename).relative_to(PROJECT).with_suffix("").parts
    return f"{first}.{second}" if first == "webhook" else first


def floor(package: str) -> int:
    """Return how high the contract in pyproject.toml has a package of webhook, or policies."""
    contracts = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [layers] = [c["layers"] for c in contracts["contracts"] if c.get("containers") == ["webhook"]]
    names = [[f"webhook.{name.strip()}" for name in layer.split("|")] for layer in layers]
    return next((len(names) - n for n, layer in enumerate(names) if package in layer), 0)
