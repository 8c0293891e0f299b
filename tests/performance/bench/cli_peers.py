"""The command lines that the benchmarks compare.

conftest and gator have one rule, in cli_rules/: no toleration of the GPU taint without a GPU
request. gpufence does more: it has more rules, and computes what the webhook would add.
kubeconform and PyYAML only parse.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from controlplane import cache
from controlplane.gpufence import COMMAND

GPUFENCE, CONFTEST, GATOR = "gpufence check", "conftest test", "gator test"
PYYAML = "PyYAML's CSafeLoader (parses only)"
BUILD_SECONDS = 600
RULES = Path(__file__).with_name("cli_rules")

_LOAD = """
import sys
from pathlib import Path
import yaml
path = Path(sys.argv[1])
for file in sorted(path.iterdir()) if path.is_dir() else [path]:
    for document in yaml.load_all(file.read_text(), yaml.CSafeLoader):
        pass
"""


class CommandLine(NamedTuple):
    """A command line for a file or a directory, and the text that it prints for each finding."""

    name: str
    arguments: Callable[[Path], list[str | Path]]
    finding: str = ""

    def found(self, path: Path) -> int:
        """Run it and return the number of findings in its output."""
        completed = subprocess.run(self.arguments(path), capture_output=True, text=True)
        return completed.stdout.count(self.finding)


class _Tool(NamedTuple):
    """Another tool, and its Go package."""

    name: str
    program: str
    package: str
    arguments: tuple[str | Path, ...]
    finding: str = ""


_TOOLS = (
    _Tool(
        "kubeconform (parses only)",
        "kubeconform",
        "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0",
        # This schema accepts everything.
        ("-schema-location", RULES / "any.json"),
    ),
    _Tool(
        CONFTEST,
        "conftest",
        "github.com/open-policy-agent/conftest@v0.71.1",
        ("test", "--no-color", "-p", RULES / "rego"),
        "tolerates the GPU taint without",
    ),
    _Tool(
        GATOR,
        "gator",
        "github.com/open-policy-agent/gatekeeper/v3/cmd/gator@v3.23.1",
        ("test", "-f", RULES / "gator", "-f"),
        "tolerates the GPU taint without",
    ),
)


def command_lines() -> Iterator[CommandLine]:
    """Yield gpufence, and the other tools that are in the cache or can be built."""
    yield CommandLine(GPUFENCE, lambda path: [COMMAND, "check", path], "  enforce  pool-trespass")
    for output_format in ("json", "sarif"):
        yield CommandLine(f"{GPUFENCE} -o {output_format}", _checking(COMMAND, output_format))
    yield CommandLine(PYYAML, lambda path: [sys.executable, "-c", _LOAD, path])
    directory = cache.root().with_name("bench") / "bin"
    for tool in _TOOLS:
        program = _program(tool, directory)
        if program is None:
            print(f"{tool.name} is skipped: it needs a Go toolchain", file=sys.stderr)
        else:
            yield CommandLine(tool.name, _using(program, tool.arguments), tool.finding)


def versions() -> dict[str, str]:
    """Return the versions of the tools that the requirements do not pin."""
    return {tool.program: tool.package.partition("@")[2] for tool in _TOOLS}


def _checking(gpufence: Path, output_format: str) -> Callable[[Path], list[str | Path]]:
    return lambda path: [gpufence, "check", "-o", output_format, path]


def _using(program: str, arguments: tuple[str | Path, ...]) -> Callable[[Path], list[str | Path]]:
    return lambda path: [program, *arguments, path]


def _program(tool: _Tool, directory: Path) -> str | None:
    path = shutil.which(tool.program, path=directory)
    if path is None:
        _build(tool.package, directory)
        path = shutil.which(tool.program, path=directory)
    return path


def _build(package: str, directory: Path) -> None:
    go = shutil.which("go")
    if go is None:
        return
    print(f"building {package} ...", file=sys.stderr)
    directory.mkdir(parents=True, exist_ok=True)
    environ = os.environ | {"GOBIN": str(directory)}
    try:
        subprocess.run(
            [go, "install", package], env=environ, timeout=BUILD_SECONDS, check=True, cwd="/"
        )
    except subprocess.SubprocessError as error:
        print(f"{package} could not be built: {error}", file=sys.stderr)
