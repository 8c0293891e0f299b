"""A replica in clusters of many nodes, in its own process, over TLS: `python -m bench.scale N…`.

The cluster is that of `bench.fleet`, with ten Pods for each node, which are audited. Times of
reviews include the scheduling of this machine; CPU, memory and stalls of the event loop are the
replica's own.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import Request, urlopen

from bench import reviews
from bench.contestants import GPUFENCE, Contestant, silent
from bench.fleet import HOSTNAME, Objects, cluster
from bench.report import table
from certificates import issue
from controlplane import kubeconfig
from controlplane.gpufence import COMMAND, HOST, Replica
from controlplane.ports import free_ports
from controlplane.process import Process
from policies.shipped import DEFAULT

_PHASES = {
    "no changes": (["churn?rate=0"], 500, 20),
    "300 changed nodes/s": (["churn?rate=300"], 500, 20),
    "a node added every 3 ms": (["churn?rate=333&adds"], 500, 20),
    "a relist after 410": (["churn?rate=0", "compact"], 500, 20),
    "watches silent for 300 s": (["churn?rate=300", "silence?seconds=300"], 50, 300),
}
"""By title, the orders to the fake API server, the reviews a second, and the seconds."""
_CONNECTIONS = 16
_START_SECONDS = 600
_PODS_OF_NODE = 10
_MOST_TERMS, _MOST_VALUES, _TIMES = 200, 5_000, 10
Figures = dict[str, str]


class Scaled(Replica):
    """A replica that follows the cluster of an API server."""

    def __init__(self, directory: Path, api: str) -> None:
        config = kubeconfig.write(directory / "kubeconfig", api, {"token": "bench"})
        pair = [directory / "tls.crt", directory / "tls.key"]
        authority = issue(["localhost", HOST], directory)
        flags = [f"--policy={DEFAULT}", f"--kubeconfig={config}", "--node-facts"]
        flags += [f"--tls-cert={pair[0]}", f"--tls-key={pair[1]}"]
        self._stalls = directory / "stalls"
        command: list[str | Path] = [sys.executable, "-m", "bench.probed", self._stalls]
        super().__init__(directory, flags, command=command)
        self.used = Contestant(GPUFENCE, self.process, self.port)
        self.tls = ssl.create_default_context(cadata=authority.certificate_pem.decode())

    def has_listed(self, collections: Mapping[str, Objects]) -> bool:
        """Return whether it knows all objects of the collections that it watches."""
        watched = ("nodes", "nodeclaims", "resourceslices")
        counts = {path.rpartition("/")[2]: each.count for path, each in collections.items()}
        series = 'gpufence_cluster_objects{{resource="{}"}}'
        return all(self.metric(series.format(name)) >= counts[name] for name in watched)

    def longest_stall(self, since: float) -> float:
        """Return the most milliseconds for which the event loop stood still since then."""
        lines = (line.split() for line in self._stalls.read_text().splitlines())
        return max((float(ms) for at, ms in lines if float(at) >= since), default=0.0)


class Client:
    """Sends reviews over kept connections, at a rate, and checks each answer."""

    def __init__(self, server: Scaled) -> None:
        self._server = server
        self._free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = (
            asyncio.Queue()
        )
        self.wrong = 0

    async def connect(self) -> None:
        for _ in range(_CONNECTIONS):
            streams = await asyncio.open_connection(HOST, self._server.port, ssl=self._server.tls)
            self._free.put_nowait(streams)

    async def send(self, endpoint: str, body: bytes, expected: bytes = b'"allowed":true') -> float:
        """Send a review; return its milliseconds."""
        reader, writer = streams = await self._free.get()
        began = time.monotonic()
        head = f"POST /{endpoint} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answered = await reader.readuntil(b"\r\n\r\n")
        length = int(answered.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        answer = await reader.readexactly(length)
        taken = (time.monotonic() - began) * 1000
        self._free.put_nowait(streams)
        self.wrong += expected not in answer
        return taken

    async def load(self, endpoint: reviews.Endpoint, rate: int, seconds: float) -> list[float]:
        """Send reviews of a GPU Pod at the rate; return their milliseconds."""
        body, asked = reviews.body("gpu-pod", endpoint), []
        began = time.monotonic()
        for number in range(int(rate * seconds)):
            if (pause := began + number / rate - time.monotonic()) > 0:
                await asyncio.sleep(pause)
            asked.append(asyncio.create_task(self.send(endpoint, body)))
        return await asyncio.gather(*asked)


def expensive_pods() -> Iterator[tuple[str, bytes]]:
    """Yield the reviews of Pods that cost most: as many terms and values as a Pod may have."""
    each = _MOST_VALUES // _MOST_TERMS
    hosts = [[f"n{term * each + host}" for host in range(each)] for term in range(_MOST_TERMS)]
    requirements: Mapping[str, Sequence[dict[str, Any]]] = {
        "every host": [{"key": HOSTNAME, "operator": "Exists"}] * _MOST_TERMS,
        "25 hosts": [{"key": HOSTNAME, "operator": "In", "values": own} for own in hosts],
        "all but 25 hosts": [
            {"key": HOSTNAME, "operator": "NotIn", "values": own} for own in hosts
        ],
        "more memory": [
            {"key": "example.com/memory", "operator": "Gt", "values": [str(bound * 20 + 13)]}
            for bound in range(_MOST_TERMS)
        ],
    }
    cases: tuple[tuple[reviews.Case, int], ...] = (("plain-pod", 0), ("gpu-pod", 16))
    for case, gpus in cases:
        review = json.loads(reviews.body(case, "validate"))
        spec = review["request"]["object"]["spec"]
        if gpus:
            limits = spec["containers"][0]["resources"]
            limits["limits"]["nvidia.com/gpu"] = limits["requests"]["nvidia.com/gpu"] = str(gpus)
        for name, terms in requirements.items():
            selected = {"nodeSelectorTerms": [{"matchExpressions": [term]} for term in terms]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": selected}
            placed = {
                "affinity": {"nodeAffinity": required},
                "tolerations": [{"operator": "Exists"}],
            }
            review["request"]["object"]["spec"] = {**spec, **placed}
            yield f"{name}, {gpus} GPUs", json.dumps(review).encode()


async def measure(nodes: int) -> Figures:
    """Measure one replica, an audit and an adoption in a cluster of so many nodes."""
    with TemporaryDirectory() as temporary, ExitStack() as stack:
        directory = Path(temporary)
        server, api = started(nodes, directory, stack)
        figures = await synced(server, nodes)
        figures |= await _under_load(server, api)
        server.stop()
        for name in ("audit", "adopt"):
            figures |= _command(name, directory)
        return figures


def started(nodes: int, directory: Path, stack: ExitStack) -> tuple[Scaled, str]:
    """Start a fake API server and a replica; return the replica, and the URL of the other."""
    [port] = free_ports(1)
    api = f"http://{HOST}:{port}"
    counts = str(nodes), str(nodes * _PODS_OF_NODE)
    command = [sys.executable, "-m", "bench.fleet", str(port), *counts]
    fleet = Process("fleet", command, directory / "fleet.log")
    server = Scaled(directory, api)
    for process in (fleet, server):
        stack.callback(process.stop)
        process.start()
    return server, api


async def synced(server: Scaled, nodes: int) -> Figures:
    """Wait until the replica knows the cluster."""
    began = time.monotonic()
    server.process.wait(silent(server.port))
    listening = time.monotonic()
    while server.unready() or not server.has_listed(cluster(nodes, 0)):
        if time.monotonic() - began > _START_SECONDS:
            raise TimeoutError(server.unready())
        await asyncio.sleep(0.2)
    return {
        "synced after, CPU s": f"{server.used.cpu_seconds():.1f}",
        "synced after, s": f"{time.monotonic() - began:.0f}",
        "longest stall meanwhile, CPU ms": f"{server.longest_stall(listening):.1f}",
    }


def _command(name: str, directory: Path) -> Figures:
    """Run a command on the whole cluster."""
    config, out = directory / "kubeconfig", directory / name
    command: list[str | Path] = [COMMAND, name, f"--policy={DEFAULT}", f"--kubeconfig={config}"]
    command += ["--out", out] if name == "adopt" else ["--output", f"json={out}"]
    began, progress = time.monotonic(), 0.0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while os.read(process.stderr.fileno(), 65536):
            progress = progress or time.monotonic() - began
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{command}: status {process.returncode}")
    return {
        f"{name}: CPU s": f"{usage.ru_utime + usage.ru_stime:.0f}",
        f"{name}: memory MiB": f"{usage.ru_maxrss / 1024:.0f}",
        f"{name}: first progress after, s": f"{progress:.0f}",
    }


async def _under_load(server: Scaled, api: str) -> Figures:
    client = Client(server)
    await client.connect()
    figures: Figures = {}
    for phase, (orders, rate, seconds) in _PHASES.items():
        for order in orders:
            _order(api, order)
        # The last line about the phase before may come late.
        await asyncio.sleep(1)
        began, cpu, client.wrong = time.monotonic(), server.used.cpu_seconds(), 0
        for endpoint in reviews.endpoints("gpu-pod"):
            taken = await client.load(endpoint, rate, seconds / 2)
            figures[f"{phase}: /{endpoint} p50, p99 ms"] = _quantiles(taken)
        figures[f"{phase}: CPU ms of a review"] = (
            f"{(server.used.cpu_seconds() - cpu) / rate / seconds * 1000:.2f}"
        )
        figures[f"{phase}: longest stall, CPU ms"] = f"{server.longest_stall(began):.1f}"
        figures[f"{phase}: wrong answers"] = str(client.wrong)
    costs = {}
    for name, body in expensive_pods():
        cpu = server.used.cpu_seconds()
        for _ in range(_TIMES):
            await client.send("validate", body, b'"uid"')
        costs[name] = (server.used.cpu_seconds() - cpu) / _TIMES * 1000
    worst = max(costs, key=costs.__getitem__)
    figures["most expensive Pod, CPU ms"] = f"{costs[worst]:.0f} ({worst})"
    figures["memory at the end, MiB"] = f"{server.used.memory():.0f}"
    return figures


def _quantiles(taken: Sequence[float]) -> str:
    cuts = statistics.quantiles(taken, n=100)
    return f"{cuts[49]:.1f}, {cuts[98]:.1f}"


def _order(api: str, order: str) -> None:
    order_of = Request(f"{api}/-/{order}", method="POST")  # noqa: S310 - this process started it
    urlopen(order_of, timeout=60).close()  # noqa: S310


def main() -> None:
    sizes = [*map(int, sys.argv[1:])]
    measured = [asyncio.run(measure(size)) for size in sizes]
    rows = ((name, *(each[name] for each in measured)) for name in measured[0])
    print(table(("", *(f"{size:,} nodes" for size in sizes)), rows))


if __name__ == "__main__":
    main()
