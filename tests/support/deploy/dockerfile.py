"""Reads a Dockerfile, and runs a build stage without Docker."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pip

from paths import DEPLOY

_INSTRUCTION = re.compile(r"\s*(?P<word>[A-Z]+)\s+(?P<rest>.*)", re.DOTALL)


@dataclass(frozen=True)
class Instruction:
    """One instruction: its word, and all that follows, with continued lines joined."""

    word: str
    rest: str

    def exec_form(self) -> list[str]:
        """Return the arguments of an ENTRYPOINT or CMD."""
        arguments: list[str] = json.loads(self.rest)
        return arguments


def stages(text: str) -> list[list[Instruction]]:
    """Return the instructions of each stage, which begins with its FROM."""
    instructions: list[list[Instruction]] = []
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", "", "\n".join(lines)).splitlines():
        match = _INSTRUCTION.fullmatch(line)
        if match is None:
            continue
        if match["word"] == "FROM":
            instructions.append([])
        if instructions:
            instructions[-1].append(Instruction(match["word"], match["rest"].strip()))
    return instructions


def environment(stage: list[Instruction]) -> dict[str, str]:
    """Return the variables that a stage sets, but those that extend another."""
    pairs = [
        pair.partition("=")
        for instruction in stage
        if instruction.word == "ENV"
        for pair in shlex.split(instruction.rest)
    ]
    return {name: value for name, _, value in pairs if "$" not in value}


def image_environment() -> dict[str, str]:
    """Return the variables with which gpufence runs in its image, but where its programs are."""
    variables = environment(stages((DEPLOY / "Dockerfile").read_text())[-1])
    return {name: value for name, value in variables.items() if name != "PATH"}


def carry_out(
    stage: list[Instruction],
    context: Path,
    root: Path,
    environ: Mapping[str, str],
    *,
    compiled: bool = False,
) -> None:
    """Execute the COPY and RUN instructions of a stage, with ``root`` in place of ``/``.

    Absolute paths below /opt and /src are taken to be of that root; programs are this machine's.
    Commands have the variables of ``environ``.
    """
    directory = root
    for instruction in stage:
        match instruction.word:
            case "WORKDIR":
                directory = root / instruction.rest.lstrip("/")
                directory.mkdir(parents=True, exist_ok=True)
            case "COPY":
                *sources, target = shlex.split(instruction.rest)
                for source in sources:
                    _copy(context / source, directory / target, into=target.endswith("/"))
            case "RUN" if "compileall" in instruction.rest and not compiled:
                pass  # It takes longest, and most tests do not need it.
            case "RUN":
                command = re.sub(r"(?<=[\s])/(opt|src)/", rf"{root}/\1/", f" {instruction.rest}")
                env = {**os.environ, **environment(stage), **environ}
                subprocess.run(["sh", "-euc", command], cwd=directory, check=True, env=env)


def _copy(source: Path, target: Path, *, into: bool) -> None:
    if source.is_dir():
        # As Docker does: the contents of the directory, not the directory.
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=ignored)
        return
    target = target / source.name if into else target
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def image_python(directory: Path) -> dict[str, str]:
    """Return the variables with which a build stage finds a Python that is no virtual environment.

    It borrows pip from the environment of the tests, because not every Python has one.
    """
    directory.mkdir()
    (directory / "pip").symlink_to(str(pip.__path__[0]))
    path = os.pathsep.join((f"{sys.base_prefix}/bin", os.environ["PATH"]))
    return {"PATH": path, "PYTHONPATH": str(directory)}


def run_image(root: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run gpufence in the root of an image, with nothing of this machine if root runs it."""
    [program] = root.rglob("bin/gpufence")
    python = program.read_text().splitlines()[0].removeprefix("#!")
    command: list[str | Path] = ["chroot", root, python, f"/{program.relative_to(root)}"]
    environ = {"PATH": os.environ["PATH"]}
    if os.geteuid() != 0:
        command = [f"{root}{python}", program]
        environ |= {"PYTHONHOME": f"{root}{sys.base_prefix}"}
    return subprocess.run(
        [*command, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        env=environ,
        check=False,
    )
