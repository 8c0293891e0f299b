"""What commands import: start-up is part of the product, and heavy libraries are not for all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli.running import GPU_POD

PROBE = """
import sys
from webhook.cli.main import main
main(sys.argv[1:])
names = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(*names, file=sys.stderr)
"""
# What the interpreter's environment brings: editable installs, coverage, the probe itself.
ENVIRONMENT = {"__main__", "_distutils_hack", "sitecustomize", "usercustomize"}
SERVING = {"aiohttp", "kubernetes", "cryptography", "jsonpatch", "prometheus_client", "uvloop"}


def imported(*args: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *args], capture_output=True, text=True, check=True
    )
    names = set(done.stderr.splitlines()[-1].split())
    return {n for n in names - ENVIRONMENT if not n.startswith(("_sysconfigdata", "__editable"))}


@pytest.fixture
def pod(tmp_path: Path) -> str:
    path = tmp_path / "pod.yaml"
    path.write_text(GPU_POD)
    return str(path)


@pytest.mark.parametrize(
    "args",
    [
        ["--version"],
        ["--help"],
        ["check", "--help"],
        ["mutate", "--help"],
        ["explain", "--help"],
        ["krm", "--help"],
        ["test", "--help"],
        ["policy", "--help"],
        ["certs", "issue", "--help"],
        ["serve", "--help"],
    ],
    ids=" ".join,
)
def test_help_costs_nothing(args: list[str]) -> None:
    assert imported(*args) == {"click", "webhook"}


@pytest.mark.parametrize("command", ["check", "explain", "mutate"])
def test_checking_imports_nothing_that_serves(command: str, pod: str) -> None:
    found = imported(command, pod)
    assert not found & (SERVING | {"rich", "pygments", "certs"})
    assert {"click", "yaml", "msgspec", "policies", "webhook"} <= found


def test_rich_is_for_terminals(pod: str) -> None:
    assert "rich" in imported("check", "--color", "always", pod)
    assert "pygments" not in imported("check", "--color", "always", pod)
    assert "rich" not in imported("check", "--output", "json", pod)
