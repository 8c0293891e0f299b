"""Runs a replica in a separate process, with files that it reloads when they change."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from certs.authority import create_authority, issue_leaf
from certs.files import write_pairs
from certs.keypair import KeyPair
from certs.names import Names
from controlplane.gpufence import COMMAND
from deploy.dockerfile import image_environment
from soak import churn
from soak.traffic import HOST

_START_SECONDS = 60.0

T = TypeVar("T")


def run(work: Callable[[Path], Coroutine[Any, Any, T]]) -> T:
    """Run `work` in a temporary directory, with the highest limit of open files."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with (
        tempfile.TemporaryDirectory() as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(work(Path(directory)))


@dataclass(frozen=True)
class Replica:
    """The address of a running replica, and its files."""

    pid: int
    port: int
    policy: Path
    certificates: Path
    ca: KeyPair

    @property
    def ca_file(self) -> Path:
        return self.certificates / "ca.crt"

    def context(self) -> ssl.SSLContext:
        """Return a TLS context that trusts the replica's CA."""
        return ssl.create_default_context(cafile=self.ca_file)


@asynccontextmanager
async def replica(directory: Path, flags: Sequence[str | Path] = ()) -> AsyncIterator[Replica]:
    """Run a replica during the block, with additional `flags`."""
    now = datetime.now(UTC)
    ca, certificates = create_authority(now), directory / "certs"
    leaf = issue_leaf(ca, Names.parse(["localhost"], [HOST]), now)
    write_pairs(certificates, ca, leaf)
    policy = directory / "policy.yaml"
    churn.write_policy(policy, churn.POLICY_USERS[0])
    log = directory / "serve.log"
    with log.open("wb") as errors:
        server = await asyncio.create_subprocess_exec(
            *(COMMAND, "serve", "--policy", policy),
            *("--tls-cert", certificates / "tls.crt", "--tls-key", certificates / "tls.key"),
            *("--host", HOST, "--port", "0", "--metrics-port", "0"),
            *flags,
            stderr=errors,
            env=os.environ | image_environment(),
        )
    try:
        yield Replica(server.pid, await _port(log), policy, certificates, ca)
    finally:
        server.terminate()
        await server.wait()


async def _port(log: Path) -> int:
    async with asyncio.timeout(_START_SECONDS):
        while True:
            for line in (await asyncio.to_thread(log.read_text)).splitlines():
                if (entry := json.loads(line)).get("event") == "ready":
                    return int(entry["port"])
            await asyncio.sleep(0.05)
