"""The command line as a whole: help, imports, output streams and exit statuses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import click
import pytest

from controlplane.gpufence import COMMAND
from policies.shipped import default_policy_text
from running import CONFIG_MAP, GPU_POD, PLAIN_POD, TRESPASSER, Run
from webhook.tools.cli.main import cli


def commands(group: click.Group, *above: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command below a group."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *above, name)
        else:
            yield (*above, name)


def test_the_help_of_every_command_has_examples(gpufence: Run, subtests: pytest.Subtests) -> None:
    for words in commands(cli):
        with subtests.test(words=words):
            done = gpufence(*words, "--help")
            assert done.status == 0
            _, _, examples = done.out.partition("\n  Examples:\n")
            assert f"gpufence {' '.join(words)}" in examples


def test_the_help_of_check_documents_the_exit_statuses(gpufence: Run) -> None:
    _, _, text = gpufence("check", "--help").out.partition("\n  Exit status:\n")
    statuses = [line.split()[0] for line in text.partition("\n\n")[0].splitlines()]
    assert statuses == ["0", "1", "2", "70", "130", "141"]


def test_the_help_lists_every_command_with_a_description(gpufence: Run) -> None:
    lines = gpufence("--help").out.partition("\nCommands:\n")[2].splitlines()
    listed = {line.split()[0]: line for line in lines if line.startswith("  ") and line[2] != " "}
    for words in commands(cli):
        assert len(listed[words[0]].split()) > 3


def test_check_exits_141_without_a_message_if_the_pipe_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "many.yaml"
    path.write_text("---\n".join([GPU_POD] * 400))
    process = subprocess.Popen(
        [COMMAND, "check", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


@pytest.mark.parametrize("count", [1, 200])
def test_output_to_a_full_device_is_an_error(tmp_path: Path, count: int) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text("---\n".join([GPU_POD] * count))
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [COMMAND, "check", path], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 2
    assert done.stderr.decode() == (
        "Error: the output cannot be written (No space left on device). "
        "Free disk space, or write to another place.\n"
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_above_the_file_size_limit_is_an_error(tmp_path: Path, unbuffered: str) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text("---\n".join([GPU_POD] * 200))
    done = subprocess.run(
        ["sh", "-c", f'ulimit -f 8; "{COMMAND}" mutate "{path}" > "{tmp_path}/made"'],
        capture_output=True,
        text=True,
        check=False,
        # The limit would cut off the bytecode of modules, and break every later import.
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    problem = "the output cannot be written (File too large)"
    error = f"Error: {problem}. Free disk space, or write to another place.\n"
    assert (done.returncode, done.stderr) == (2, error)


def test_nonblocking_pipes_are_set_to_blocking() -> None:
    (stdin, write), (read, stdout) = os.pipe(), os.pipe()
    for end in (stdin, stdout):
        os.set_blocking(end, False)
    os.write(write, TRESPASSER.encode())
    os.close(write)
    subprocess.run([COMMAND, "check", "-"], stdin=stdin, stdout=stdout, check=False)
    # Every process that shares the pipe sees what is set.
    assert os.get_blocking(stdin)
    assert os.get_blocking(stdout)
    assert os.read(read, 65_536).endswith(b"gpufence explain pool-trespass\n")
    for end in (stdin, stdout, read):
        os.close(end)


def test_characters_that_the_output_encoding_lacks_are_escaped() -> None:
    settings = CONFIG_MAP.replace("name: settings", "name: größe")
    done = subprocess.run(
        [COMMAND, "check", "--verbose", "-"],
        input=settings.encode(),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0
    assert rb"ConfigMap gr\xf6\xdfe" in done.stdout


PROBE = """
import sys
from webhook.tools.cli.main import main
for line in sys.stdin.read().splitlines():
    main(line.split())
print(*sys.modules, file=sys.stderr)
"""


# What the interpreter's environment brings: editable installs, coverage, the probe itself.
ENVIRONMENT = {"__main__", "_distutils_hack", "sitecustomize", "usercustomize"}


# What PyYAML's and msgspec's own modules bring.
COMPILED = {"cython_runtime", "typing_extensions"}


# Each takes milliseconds, and none has to do with checking a file.
SLOW_STANDARD_LIBRARY = frozenset(
    {"asyncio", "concurrent", "email", "hashlib", "http", "logging", "multiprocessing"}
    | {"socket", "ssl", "tempfile", "unittest", "xml", "zipfile"}
)


def loaded(*runs: str) -> set[str]:
    """Return the names of all modules that command lines load in one process."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        input="\n".join(runs),
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.splitlines()[-1].split())


def imported(*runs: str) -> tuple[set[str], set[str]]:
    """Return what command lines in one process import: other libraries, and all packages."""
    modules = {name.partition(".")[0] for name in loaded(*runs)}
    found = modules - sys.stdlib_module_names - ENVIRONMENT - COMPILED
    brought = ("_sysconfigdata", "__editable", "_cython")
    return {name for name in found if not name.startswith(brought)}, modules


def test_help_imports_no_library_that_it_does_not_need() -> None:
    assert imported("--version", "--help")[0] == {"click", "msgspec", "policies", "webhook"}


def test_decisions_on_files_import_only_the_required_libraries(tmp_path: Path) -> None:
    pod, policy = tmp_path / "pod.yaml", tmp_path / "policy.yaml"
    pod.write_text(GPU_POD)
    policy.write_text(default_policy_text())
    checks = [f"check --output {name} {pod}" for name in ("text", "json", "github")]
    libraries, modules = imported(*checks, f"explain {pod}", f"mutate {pod}")
    # What applies the mutations of a GPU Pod.
    patching = {"jsonpatch", "jsonpointer"}
    assert libraries - patching == {"click", "yaml", "msgspec", "policies", "webhook"}
    assert not modules & SLOW_STANDARD_LIBRARY
    assert "pydantic" in imported(f"check --policy {policy} {pod}")[0]


def test_a_replica_loads_no_other_tool_and_nothing_that_reads_yaml() -> None:
    prefixes = ("webhook.tools.", "webhook.documents.", "webhook.controller", "yaml", "kubernetes")
    command_line = {
        f"cli{name}" for name in ("", ".main", ".commands", ".commands.serve", ".flags")
    }
    assert {name for name in loaded("serve --help") if name.startswith(prefixes)} == {
        *(f"webhook.tools.{name}" for name in command_line),
        "webhook.documents.document",
    }


def test_a_bug_exits_70_and_an_interruption_exits_130(
    gpufence: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []
    for failure in (ZeroDivisionError("of ours"), KeyboardInterrupt()):
        monkeypatch.setattr("webhook.tools.cli.evaluate.judged", Mock(side_effect=failure))
        ended.append(gpufence("check", "-", stdin=PLAIN_POD))
    assert [done.status for done in ended] == [70, 130]
    assert "this is a bug in gpufence" in ended[0].err
    assert ["ZeroDivisionError: of ours" in done.err for done in ended] == [True, False]
