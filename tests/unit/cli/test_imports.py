"""What commands import: start-up is part of the product, and heavy libraries are not for all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from running import GPU_POD, run_command

PROBE = """
import sys
from webhook.cli.main import main
main(sys.argv[1:])
names = {name.partition(".")[0] for name in sys.modules}
print(*names, file=sys.stderr)
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
SERVING = {"aiohttp", "kubernetes", "cryptography", "jsonpatch", "prometheus_client", "uvloop"}


def imported_modules(*args: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *args], capture_output=True, text=True, check=True
    )
    return set(done.stderr.splitlines()[-1].split())


def imported(*args: str) -> set[str]:
    """Return what is imported in addition to the standard library."""
    names = imported_modules(*args) - sys.stdlib_module_names - ENVIRONMENT
    return {n for n in names if not n.startswith(("_sysconfigdata", "__editable"))}


@pytest.fixture
def pod(tmp_path: Path) -> str:
    path = tmp_path / "pod.yaml"
    path.write_text(GPU_POD)
    return str(path)


@pytest.mark.parametrize("args", [["--version"], ["--help"]], ids=" ".join)
def test_help_imports_only_click_and_webhook(args: list[str]) -> None:
    assert imported(*args) == {"click", "webhook"}


@pytest.mark.parametrize("command", ["check", "explain", "mutate"])
def test_check_explain_and_mutate_import_no_server_libraries(command: str, pod: str) -> None:
    found = imported(command, pod)
    assert not found & (SERVING | {"rich", "pygments", "certs"})
    assert {"click", "yaml", "msgspec", "policies", "webhook"} <= found


@pytest.mark.parametrize("output", ["text", "json", "github", "markdown"])
def test_check_imports_only_the_required_libraries(output: str, pod: str) -> None:
    found = imported("check", "--output", output, pod)
    libraries = {name for name in found - COMPILED if not name.startswith("_cython")}
    assert libraries == {"click", "yaml", "msgspec", "policies", "webhook"}
    assert not imported_modules("check", "--output", output, pod) & SLOW_STANDARD_LIBRARY


def test_pydantic_is_imported_only_with_a_policy_file(pod: str, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(run_command("policy", "show").out)
    assert "pydantic" not in imported("check", pod)
    assert "pydantic" in imported("check", "--policy", str(policy), pod)


def test_rich_is_imported_only_for_colored_output(pod: str) -> None:
    assert "rich" in imported("check", "--color", "always", pod)
    assert "pygments" not in imported("check", "--color", "always", pod)
    assert "rich" not in imported("check", "--output", "json", pod)
