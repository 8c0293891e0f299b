"""The ports of test sessions that run at the same time."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import ExitStack
from subprocess import PIPE

import pytest

from controlplane.ports import free_ports
from paths import TESTS

COUNT = 100
SESSION = f"""
import sys
from controlplane.ports import free_ports
print(free_ports({COUNT}), flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ports are held on Linux only")


def session(stack: ExitStack, said: list[str]) -> list[int]:
    """Return the ports of a process that runs until the end of `stack`; keep what it says then."""
    environ = {"PYTHONPATH": str(TESTS / "support")}
    command = [sys.executable, "-X", "dev", "-c", SESSION]
    process = subprocess.Popen(
        command, env=environ, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True
    )
    stack.enter_context(process)
    assert process.stdout is not None
    ports: list[int] = json.loads(process.stdout.readline())
    stack.callback(lambda: said.append(process.communicate()[1]))
    return ports


def test_sessions_that_run_at_the_same_time_have_different_ports() -> None:
    """A port is bound only later, so that it looks free to other sessions."""
    said: list[str] = []
    with ExitStack() as stack:
        ports = [port for _ in range(4) for port in session(stack, said)]
    assert len(set(ports)) == len(ports) == 4 * COUNT
    # No warning of an open socket.
    assert said == [""] * 4


def test_a_port_is_given_to_no_other_process_before_its_server_listens() -> None:
    ports = free_ports(COUNT)
    with ExitStack() as stack:
        others = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2 * COUNT)
        ]
        assert not set(ports) & {each.getsockname()[1] for each in others}
        for port in ports:
            stack.enter_context(socket.create_server(("127.0.0.1", port)))
        assert not set(ports) & {port for _ in range(5) for port in free_ports(COUNT)}
