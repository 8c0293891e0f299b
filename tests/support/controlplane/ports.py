"""TCP ports for the servers of tests."""

from __future__ import annotations

import atexit
import socket
import sys
from collections import deque

_HELD: deque[socket.socket] = deque()
_MOST_HELD = 200
"""Older ports are released: by then, their servers listen or have ended."""


def free_ports(count: int) -> list[int]:
    """Return free TCP ports of the loopback interface, for servers that bind them later.

    Until then, a bound socket that never listens holds each port on Linux: the kernel gives the
    port to no other process, but a server that sets SO_REUSEADDR, as those of Go and Python do, can
    listen on it. macOS does not let two sockets share a port, so nothing holds it there.
    """
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        if sys.platform == "linux":
            # Only now: with the option, the kernel may choose a port that another socket holds.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _HELD.append(each)
        else:
            each.close()
    _release(_MOST_HELD)
    return ports


@atexit.register
def _release(but: int = 0) -> None:
    """Release the oldest ports: Python warns of sockets that are open when a process ends."""
    while len(_HELD) > but:
        _HELD.popleft().close()
