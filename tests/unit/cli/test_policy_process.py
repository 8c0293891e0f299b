"""A policy file that a server reads: in a process of its own, which may fail, die or hang."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from certs.files import issue
from controlplane.gpufence import QUICK_RELOAD
from controlplane.process import runs
from policies.document.model import default_policy_text
from policies.document.shipped import compiled_text, shipped_policy
from reviewing import encode, plain_pod, review
from running import Run
from served_process import Server, read_response, request
from webhook.cli.policy import policy_process, policy_source
from webhook.cli.policy.policy_source import PolicyFile
from webhook.server.policy_reload import NoPolicyError, PolicyUnusableError

DEFAULT = default_policy_text()
GOOD = encode(review(plain_pod()))
BROKEN = {
    "not UTF-8": b"kind: \xff",
    "invalid YAML": b"kind: [",
    "two documents": b"a: 1\n---\nb: 2\n",
    "empty": b"",
    "unknown keys": DEFAULT.replace("pools:", "poolz:").encode(),
    "lone surrogate": DEFAULT.replace("pools:", '"\\ud800": 1\npools:').encode(),
}


async def read(document: bytes) -> object:
    return await PolicyFile("policy.yaml").parse(document)


async def test_parse_returns_the_compiled_policy() -> None:
    policy = await PolicyFile("policy.yaml").parse(DEFAULT.encode())
    assert compiled_text(policy) == compiled_text(shipped_policy())


@pytest.mark.parametrize("document", BROKEN.values(), ids=BROKEN)
async def test_an_invalid_document_is_rejected_with_the_message_of_validate(
    document: bytes, tmp_path: Path, gpufence: Run
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes(document)
    with pytest.raises(NoPolicyError) as refused:
        await PolicyFile(str(path)).parse(document)
    output = gpufence("policy", "validate", path)
    assert output.status == 2
    lines = [line.removeprefix("Error: ") for line in output.err.splitlines()]
    assert str(refused.value).encode(errors="backslashreplace").decode() == " ".join(lines)


async def test_modules_in_the_working_directory_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "policies.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    assert await read(DEFAULT.encode())


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have another program read policies, with what it is given in its place."""

    def write(program: str) -> None:
        (tmp_path / "stand_in.py").write_text(program)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(policy_source, "_READER", "stand_in")

    return write


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ("raise RuntimeError('of the models')", "exit status 1; its messages are above."),
        (
            "import os; os.kill(os.getpid(), 9)",
            (
                "signal 9 (Killed), probably for lack of memory. Raise the memory limit, or make "
                "the policy smaller."
            ),
        ),
        (
            "import os; os.kill(os.getpid(), 11)",
            (
                "signal 11 (Segmentation fault). If no process sent it, report a bug with the "
                "lines above."
            ),
        ),
    ],
    ids=["an exception", "killed", "a crash"],
)
async def test_a_reader_process_that_exits_without_a_result_is_reported(
    program: str, sentence: str, stand_in: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    stand_in(f"import sys; print('its last words', file=sys.stderr, flush=True)\n{program}")
    with pytest.raises(PolicyUnusableError) as failed:
        # More than a pipe holds, of which nothing is read.
        await read(b"#" * 1_000_000)
    assert str(failed.value) == f"policy.yaml: the process that reads it ended with {sentence}"
    assert not isinstance(failed.value, NoPolicyError)
    assert "its last words" in capfd.readouterr().err


async def test_a_reader_process_that_cannot_start_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(PolicyUnusableError) as failed:
        await read(DEFAULT.encode())
    assert str(failed.value) == (
        "policy.yaml: cannot be read: no process starts for it (No such file or "
        "directory). Raise the limit of processes."
    )


HANGS = "import signal; signal.pause()"


async def until(seen: Callable[[], int | None]) -> int:
    """Look again until there is something to be seen, and return it."""
    async with asyncio.timeout(30):
        while True:
            if found := seen():
                return found
            await asyncio.sleep(0.01)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that are started in the test."""
    start = asyncio.create_subprocess_exec
    pids: list[int] = []

    async def recorded(*args: Any, **options: Any) -> asyncio.subprocess.Process:
        process = await start(*args, **options)
        pids.append(process.pid)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", recorded)
    return pids


async def test_a_reader_process_is_killed_after_the_timeout(
    stand_in: Callable[[str], None], started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(HANGS)
    monkeypatch.setattr(policy_process, "LONGEST_SECONDS", 0.2)
    with pytest.raises(PolicyUnusableError) as failed:
        await read(b"")
    assert str(failed.value) == (
        "policy.yaml: is not read within 0.2 seconds. Give gpufence more CPU, or make the policy "
        "smaller."
    )
    assert [runs(pid) for pid in started] == [False]


async def test_canceling_a_read_stops_the_reader_process(
    stand_in: Callable[[str], None], started: list[int]
) -> None:
    stand_in(HANGS)
    reading = asyncio.create_task(read(b""))
    await until(lambda: len(started))
    assert runs(started[0])
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert not runs(started[0])


# ------------------------------------------------------------------------------ the server itself


# A sitecustomize, which Python runs before all else: the process that reads a policy stops at its
# beginning, for as long as there is a file that says so. From outside, it might be met too late.
STOPS = f"""
import os, signal, sys
from pathlib import Path
if {policy_process.__name__!r} in sys.orig_argv and Path(__file__).with_name("stop").exists():
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@asynccontextmanager
async def serving(directory: Path, **environ: str) -> AsyncIterator[Server]:
    """Run ``gpufence serve`` with the file policy.yaml of a directory."""
    issue(["localhost"], ["127.0.0.1"], directory / "certs", datetime.now(UTC))
    process = await asyncio.create_subprocess_exec(
        *QUICK_RELOAD,
        *("serve", "--policy", "policy.yaml"),
        *("--tls-cert", "certs/tls.crt", "--tls-key", "certs/tls.key"),
        *("--host", "127.0.0.1", "--port", "0"),
        *("--metrics-host", "127.0.0.1", "--metrics-port", "0", "--drain-seconds", "0"),
        stderr=subprocess.PIPE,
        cwd=directory,
        env=os.environ | environ,
    )
    try:
        yield Server(process, ssl.create_default_context(cafile=directory / "certs" / "ca.crt"))
    finally:
        if process.returncode is None:
            # What is stopped would keep the log open.
            for pid in (*children(process.pid), process.pid):
                os.kill(pid, signal.SIGKILL)
        await process.communicate()


def replace(path: Path, text: str) -> None:
    """Write a file as a kubelet does: whole, by a rename."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.rename(path)


def has_imported_pydantic(pid: int) -> bool:
    return "pydantic" in Path(f"/proc/{pid}/maps").read_text()


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for thread in threads for child in thread.read_text().split()]


def stopped_reader(pid: int) -> int | None:
    """Return the process that reads a policy for a server, if there is one that has stopped."""
    for child in children(pid):
        if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            return child
    return None


async def allowed(running: Server) -> bool:
    reader, writer = await running.connect()
    writer.write(request(GOOD))
    _, answer = await read_response(reader)
    writer.close()
    await writer.wait_closed()
    return bool(answer["response"]["allowed"])


async def test_the_server_process_never_imports_pydantic(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(DEFAULT)
    async with serving(tmp_path) as running:
        await running.logged("ready")
        assert not has_imported_pydantic(running.process.pid)
        replace(policy, DEFAULT + "# another\n")
        assert (await running.logged("policy applied"))["generation"] == 2
        replace(policy, "kind: [")
        line = await running.logged("policy rejected")
        assert line["problem"].startswith("policy.yaml:1")
        assert not has_imported_pydantic(running.process.pid)


@asynccontextmanager
async def reading_another_policy(directory: Path) -> AsyncIterator[tuple[Server, int]]:
    """Serve, and provide the server and the process that reads another policy, which is stopped."""
    policy = directory / "policy.yaml"
    policy.write_text(DEFAULT)
    modules = directory / "modules"
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(STOPS)
    async with serving(directory, PYTHONPATH=str(modules)) as running:
        await running.logged("ready")
        stop = modules / "stop"
        stop.touch()
        replace(policy, DEFAULT + "# another\n")
        reader = await until(lambda: stopped_reader(running.process.pid))
        stop.unlink()
        yield running, reader


async def test_reviews_are_answered_while_a_policy_is_read(tmp_path: Path) -> None:
    async with reading_another_policy(tmp_path) as (running, reader):
        assert await allowed(running)
        os.kill(reader, signal.SIGCONT)
        await running.logged("policy applied")
        assert await allowed(running)


async def test_the_old_policy_is_kept_and_the_read_retried_after_a_killed_reader(
    tmp_path: Path,
) -> None:
    async with reading_another_policy(tmp_path) as (running, reader):
        os.kill(reader, signal.SIGKILL)
        line = await running.logged("policy rejected")
        assert "signal 9 (Killed)" in line["problem"]
        assert line["activeGeneration"] == 1
        assert await allowed(running)
        assert (await running.logged("policy applied"))["generation"] == 2


async def test_server_shutdown_stops_the_reader_process(
    tmp_path: Path,
) -> None:
    async with reading_another_policy(tmp_path) as (running, reader):
        running.terminate()
        assert await running.ended() == 0
        assert not runs(reader)
        await running.logged("stopped")
        assert running.rest == ""


async def test_serve_exits_2_if_the_policy_is_invalid(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("kind: [")
    async with serving(tmp_path) as running:
        assert await running.ended() == 2
        assert running.process.stderr is not None
        output = (await running.process.stderr.read()).decode()
        assert output.startswith("Error: policy.yaml:1:")
        assert "Traceback" not in output
