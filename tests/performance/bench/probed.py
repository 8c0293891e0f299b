"""`gpufence serve`, which also writes how long its event loop stands still: `… bench.probed FILE`.

A line has the time and the milliseconds of CPU between two turns of the loop: other processes of
the machine do not count.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import uvloop

from webhook.tools.cli.main import main

_TURN = 0.001
_LEAST_MS = 2.0


async def _probe(path: Path) -> None:
    with path.open("w", buffering=1) as file:
        while True:
            before = time.monotonic(), time.thread_time()
            await asyncio.sleep(_TURN)
            now = time.monotonic()
            stood_still = min(now - before[0], time.thread_time() - before[1]) * 1000
            if stood_still >= _LEAST_MS:
                file.write(f"{now} {stood_still}\n")


def _probed(path: Path) -> None:
    make = uvloop.new_event_loop

    def make_probed() -> uvloop.Loop:
        loop = make()
        loop.create_task(_probe(path), name="probe")
        return loop

    uvloop.new_event_loop = make_probed


if __name__ == "__main__":
    _probed(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
