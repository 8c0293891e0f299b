"""Server processes: start, wait, stop, and the messages when that fails."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from certs.files import issue
from controlplane.errors import ControlPlaneError
from controlplane.poll import until
from controlplane.process import Process, runs
from paths import TESTS
from policies.shipped import DEFAULT


def server(tmp_path: Path, script: str, stop_within: float = 10.0) -> Process:
    command = [sys.executable, "-c", script]
    return Process("server", command, tmp_path / "server.log", stop_within=stop_within)


def test_a_process_that_exits_during_startup_is_reported_with_its_log(
    tmp_path: Path,
) -> None:
    process = server(tmp_path, "print('port is taken'); raise SystemExit(7)")
    process.start()
    with pytest.raises(ControlPlaneError) as raised:
        process.wait(lambda: "the port is closed")
    message = str(raised.value).splitlines()
    assert message[0] == "server ended with exit code 7."
    assert message[1] == f"The end of its log ({tmp_path / 'server.log'}):"
    assert message[2] == "port is taken"
    process.stop()


def test_a_process_that_is_not_ready_in_time_is_reported_with_the_reason(tmp_path: Path) -> None:
    process = server(tmp_path, "import time; time.sleep(60)")
    process.start()
    try:
        with pytest.raises(ControlPlaneError, match="not ready after 0 s: the port is closed"):
            process.wait(lambda: "the port is closed", within=0.2)
    finally:
        process.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_process_that_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    process = server(
        tmp_path,
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = os.fork()\n"
        "if child: print(child, flush=True)\n"
        "time.sleep(60)\n",
        stop_within=0.2,
    )
    process.start()
    process.wait(lambda: "" if process.tail() else "no child yet")
    assert process.pid is not None
    pids = [process.pid, int(process.tail())]
    assert all(runs(pid) for pid in pids)
    process.stop()
    until(lambda: not any(runs(pid) for pid in pids), "both to be gone")


STARTER = """
import sys
from pathlib import Path
from controlplane.forked import QUICK, Forked
from controlplane.process import Process
log = Path(sys.argv[1])
process = Process("server", ["/bin/sleep", "60"], log)
if sys.argv[2:]:
    process = Forked("gpufence", [*QUICK, *sys.argv[2:]], log)
process.start()
print(process.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a parent-death signal")
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "ended"])
@pytest.mark.parametrize("is_fork", [True, False], ids=["fork", "program"])
def test_a_process_ends_with_the_process_that_started_it(
    tmp_path: Path, is_killed: bool, is_fork: bool
) -> None:
    log = tmp_path / "server.log"
    log.touch()
    issue(["localhost"], ["127.0.0.1"], tmp_path, datetime.now(UTC))
    serve = (
        *("serve", f"--policy={DEFAULT}", "--host=127.0.0.1", "--port=0", "--metrics-port=0"),
        *(f"--tls-cert={tmp_path / 'tls.crt'}", f"--tls-key={tmp_path / 'tls.key'}"),
    )
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, log, *(serve if is_fork else ())],
        env=os.environ | {"PYTHONPATH": str(TESTS / "support")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        until(lambda: not is_fork or '"event":"ready"' in log.read_text(), "the fork to serve")
        assert runs(pid)
        if is_killed:
            starter.kill()
    until(lambda: not runs(pid), "the process to be gone")
