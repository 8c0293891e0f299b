"""Builds commands of a Go module, pinned by its go.sum, into a cache keyed by their inputs."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from controlplane import cache, toolchain
from controlplane.errors import ControlPlaneError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Static, without local paths, and only from what go.mod and go.sum pin.
FLAGS = ("-trimpath", "-buildvcs=false", "-mod=readonly")
# Skip debug information, which the linker removes (-w). The cache key ignores this flag, because it
# does not change the binaries.
COMPILER_FLAGS = ("-gcflags=all=-dwarf=false",)
ENVIRONMENT = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}


@dataclass(frozen=True)
class GoModule:
    """A Go module in a directory, and the commands to build from it."""

    directory: Path
    packages: Mapping[str, str]
    """Go package by the name of its binary."""
    ldflags: str
    what: str
    """A title for progress messages."""
    tags: str = ""
    cgo: bool = False

    def key(self) -> str:
        """Hash the inputs of the binaries, except for Go itself."""
        digest = hashlib.sha256(repr((sorted(self.packages.items()), self.ldflags, FLAGS)).encode())
        if self.tags or self.cgo:
            digest.update(f"{self.tags} {self.cgo}".encode())
        sources = [p for p in self.directory.rglob("*") if p.suffix == ".go" or is_pin(p)]
        for path in sorted(sources):
            digest.update(f"\n{path.relative_to(self.directory)}\n".encode() + path.read_bytes())
        return f"{sys.platform}-{platform.machine()}-{digest.hexdigest()[:16]}"

    def required_go(self) -> toolchain.Version:
        """Return the version on the `go` line of go.mod."""
        match = re.search(r"(?m)^go ([\d.]+)$", (self.directory / "go.mod").read_text())
        if match is None:
            raise ControlPlaneError(f"{self.directory}/go.mod has no go line: add one, `go 1.26.0`")
        return tuple(map(int, match[1].split(".")))

    def binaries(self, names: Iterable[str], root: Path) -> dict[str, Path]:
        """Return the binaries `names` from the cache below `root`; build those that are missing."""
        home = root / self.key()
        paths = {name: home / name for name in names}
        if all(path.exists() for path in paths.values()):
            return paths
        with cache.lock(home.with_suffix(".lock"), f"building {self.what}"):
            missing = [name for name, path in paths.items() if not path.exists()]
            if missing:
                self._build(missing, home)
        return paths

    def _build(self, names: list[str], home: Path) -> None:
        go = toolchain.go(self.required_go())
        cache.say(f"building {self.what}: {', '.join(names)}. Once only; minutes if all is new")
        started = time.monotonic()
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent, prefix="building-") as temporary:
            self._go_build(go, names, Path(temporary))
            for name in names:
                (Path(temporary) / name).replace(home / name)
        cache.say(f"built {len(names)} binaries in {time.monotonic() - started:.0f} s into {home}")

    def _go_build(self, go: Path, names: list[str], target: Path) -> None:
        """Build all packages with one command, which compiles and links them in parallel.

        Go names a binary after its package, or after the module if the package is its root.
        """
        packages = [self.packages[name] for name in names]
        given = [*FLAGS, *COMPILER_FLAGS, "-tags", self.tags]
        listed = self._run([str(go), "list", "-deps", *given, *packages], "downloading the modules")
        needed = sum(not line.startswith("go: ") for line in listed)
        flags = ["-v", *given, "-ldflags", self.ldflags, "-o", f"{target}/"]
        self._run([str(go), "build", *flags, *packages], f"compiling {needed:,} packages")

    def _run(self, command: list[str], step: str) -> list[str]:
        """Run Go, report how many lines it has printed, and return them.

        `go list -deps` and `go build -v` print a line for each module that they download, and for
        each package. What an earlier build has left compiled is not compiled again.
        """
        started = time.monotonic()
        with tempfile.TemporaryFile() as log:
            go = subprocess.Popen(
                command,
                cwd=self.directory,
                env=os.environ | ENVIRONMENT | {"CGO_ENABLED": str(int(self.cgo))},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            cache.say(f"{self.what}: {step} ...")
            try:
                while go.poll() is None:
                    try:
                        go.wait(timeout=cache.REPORT_EVERY)
                    except subprocess.TimeoutExpired:
                        seconds, done = time.monotonic() - started, len(_lines(log))
                        cache.say(f"{self.what}: {step}, {done:,} done after {seconds:.0f} s")
            finally:
                if go.poll() is None:
                    go.terminate()
                    go.wait()
            lines = _lines(log)
        if go.returncode:
            raise ControlPlaneError(_failure(self, lines))
        return lines


def program(name: str, directory: Path, package: str, what: str, ldflags: str = "-s -w") -> Path:
    """Return the path of the only program of a Go module, having built it where the cache has none.

    Raises:
        ControlPlaneError: no Go toolchain is available, or the build failed.
    """
    module = GoModule(directory, {name: package}, ldflags, what)
    return module.binaries([name], cache.root().with_name(name))[name]


def run(go: Path, directory: Path, *arguments: str) -> str:
    """Run Go in the directory of a module, and return what it prints.

    Raises:
        ControlPlaneError: it failed.
    """
    done = subprocess.run(
        [go, *arguments],
        cwd=directory,
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ControlPlaneError(
            f"go {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}"
            "If a module could not be downloaded, give Go a way to it (see `go help goproxy`)."
        )
    return done.stdout


def is_pin(path: Path) -> bool:
    return path.name in {"go.mod", "go.sum"}


def _lines(log: IO[bytes]) -> list[str]:
    # By position, because the builder appends to the same open file.
    return os.pread(log.fileno(), os.fstat(log.fileno()).st_size, 0).decode().splitlines()


def _failure(module: GoModule, lines: list[str]) -> str:
    errors = [line for line in lines if not re.fullmatch(r"go: downloading .*|[\w./-]+", line)]
    tail = "\n".join(errors[-20:]) or "(no output: was the compiler killed for lack of memory?)"
    return (
        f"Building {module.what} in {module.directory} failed:\n{tail}\n"
        "If modules could not be downloaded, set GOPROXY (see `go help goproxy`). If you have the "
        "binaries already, set KUBEBUILDER_ASSETS to their directory."
    )
