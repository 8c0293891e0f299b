"""The ports of test sessions that run at the same time."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import ExitStack

from controlplane.ports import free_ports
from paths import TESTS

COUNT = 100
SESSION = f"""
import sys
from controlplane.ports import free_ports
print(free_ports({COUNT}), flush=True)
sys.stdin.read()
"""


def session(stack: ExitStack) -> list[int]:
    """Return the ports of a process that runs until the end of `stack`."""
    environ = {"PYTHONPATH": str(TESTS / "support")}
    command = [sys.executable, "-c", SESSION]
    process = subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    stack.enter_context(process)
    assert process.stdout is not None
    ports: list[int] = json.loads(process.stdout.readline())
    return ports


def test_sessions_that_run_at_the_same_time_have_different_ports() -> None:
    """A port is bound only later, so that it looks free to other sessions."""
    with ExitStack() as stack:
        ports = [port for _ in range(4) for port in session(stack)]
    assert len(set(ports)) == len(ports) == 4 * COUNT


def test_a_port_that_is_in_use_is_not_returned() -> None:
    with ExitStack() as stack:
        used = set()
        for port in free_ports(COUNT):
            server = stack.enter_context(socket.create_server(("127.0.0.1", port)))
            used.add(server.getsockname()[1])
        assert not used & {port for _ in range(5) for port in free_ports(COUNT)}
