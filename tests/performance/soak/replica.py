"""Runs a replica as in the image, with a policy that it reloads when it changes."""

from __future__ import annotations

import asyncio
import os
import resource
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from controlplane.gpufence import COMMAND, Server
from deploy.dockerfile import image_environment

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


@asynccontextmanager
async def replica(directory: Path, flags: Sequence[str | Path] = ()) -> AsyncIterator[Server]:
    """Run a replica during the block, with additional `flags`."""
    environ = os.environ | image_environment()
    server = Server(directory, flags, command=[COMMAND], environ=environ)
    # A fake API server, which the replica waits for, runs in this thread.
    await asyncio.to_thread(server.__enter__)
    try:
        yield server
    finally:
        server.stop()


def trusting(server: Server) -> ssl.SSLContext:
    """Return a TLS context that trusts the replica's CA."""
    return ssl.create_default_context(cadata=server.authority.decode())
