"""The command-line tools beside which `gpufence check` is measured, and what they are given to do.

kubeconform only parses: its schema takes everything. The others have one rule, in cli_rules/: no
toleration of the GPU taint without a GPU request. That is less than gpufence does, which has more
rules and computes what the webhook would add.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from controlplane import cache

BUILD_SECONDS = 600
RULES = Path(__file__).with_name("cli_rules")

Arguments = Callable[[Path], list[str | Path]]


@dataclass(frozen=True)
class Peer:
    """A tool of the field, its arguments for a file or a folder, and its Go package if it builds.

    kyverno is measured where it is on PATH: it takes longer to build than all the others together.
    """

    name: str
    program: str
    arguments: Arguments
    package: str = ""


PEERS = (
    Peer(
        "kubeconform (parse only)",
        "kubeconform",
        lambda path: ["-schema-location", RULES / "any.json", path],
        "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0",
    ),
    Peer(
        "conftest test",
        "conftest",
        lambda path: ["test", "--no-color", "-p", RULES / "rego", path],
        "github.com/open-policy-agent/conftest@v0.71.1",
    ),
    Peer(
        "gator test",
        "gator",
        lambda path: ["test", "-f", RULES / "gator", "-f", path],
        "github.com/open-policy-agent/gatekeeper/v3/cmd/gator@v3.23.1",
    ),
    Peer("kyverno apply", "kyverno", lambda path: ["apply", RULES / "kyverno.yaml", "-r", path]),
)


def present() -> Iterator[tuple[str, Path, Arguments]]:
    """Yield name, program and arguments of each peer that is on PATH or cached, or can be built."""
    folder = cache.root().with_name("bench") / "bin"
    for peer in PEERS:
        found = shutil.which(peer.program) or shutil.which(peer.program, path=folder)
        if found is None and peer.package:
            _build(peer.package, folder)
            found = shutil.which(peer.program, path=folder)
        if found is None:
            print(f"{peer.program} is left out: put it on PATH to see it", file=sys.stderr)
        else:
            yield peer.name, Path(found), peer.arguments


def _build(package: str, folder: Path) -> None:
    go = shutil.which("go")
    if go is None:
        return
    print(f"building {package} ...", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    environ = os.environ | {"GOBIN": str(folder)}
    try:
        subprocess.run(
            [go, "install", package], env=environ, timeout=BUILD_SECONDS, check=True, cwd="/"
        )
    except subprocess.SubprocessError as error:
        print(f"{package} could not be built: {error}", file=sys.stderr)
