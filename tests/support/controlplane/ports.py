"""TCP ports for the servers of tests."""

from __future__ import annotations

import functools
import itertools
import random
import socket
from collections.abc import Iterator
from contextlib import suppress

# Below the ephemeral ports (ip_local_port_range on Linux, 49152 and up elsewhere).
_RANGE = 250
_RANGES = range(20_000, 30_000, _RANGE)


def free_ports(count: int) -> list[int]:
    """Return free TCP ports of the loopback interface.

    They are bound later. Meanwhile the kernel does not assign them to port 0, and no other process
    gets them from here.
    """
    _, ports = _own_range()
    return list(itertools.islice(filter(_is_free, ports), count))


@functools.cache
def _own_range() -> tuple[socket.socket, Iterator[int]]:
    """Return a socket at the first port of a range, which reserves the others, and those."""
    # In a random order: the ports of the process before may still wait for the ends of connections.
    for first in random.SystemRandom().sample(_RANGES, len(_RANGES)):
        reserved = socket.socket()
        try:
            reserved.bind(("127.0.0.1", first))
        except OSError:
            reserved.close()
            continue
        return reserved, itertools.cycle(range(first + 1, first + _RANGE))
    raise RuntimeError(f"no range of ports in {_RANGES.start}-{_RANGES.stop} is free")


def _is_free(port: int) -> bool:
    with socket.socket() as tried, suppress(OSError):
        tried.bind(("127.0.0.1", port))
        return True
    return False
