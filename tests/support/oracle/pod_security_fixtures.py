"""Reads the Pods on which Kubernetes tests Pod Security itself.

They are generated into k8s.io/pod-security-admission, test/testdata, one file for each Pod: a
minimal Pod that a level allows plus one tweak, which a check of that level must allow or deny.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import yaml

from oracle.driver import Level

if TYPE_CHECKING:
    from pathlib import Path

MODULE = "k8s.io/pod-security-admission"
TESTDATA = "test/testdata"
LEVELS: tuple[Level, ...] = get_args(Level)


@dataclass(frozen=True, slots=True)
class Fixture:
    """One official Pod and what the level's check, which gives it its name, must say of it."""

    level: Level
    version: str
    name: str
    allowed: bool
    pod: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.level}-{self.version}-{'pass' if self.allowed else 'fail'}-{self.name}"


def latest(testdata: Path, level: Level) -> str:
    """Return the newest version that has fixtures, such as "v1.35"."""
    versions = [directory.name for directory in (testdata / level).iterdir()]
    return max(versions, key=lambda version: tuple(map(int, version.removeprefix("v").split("."))))


def fixtures(testdata: Path) -> list[Fixture]:
    """Return every Pod of the newest version of each level, in a stable order."""
    collected = []
    for level in LEVELS:
        version = latest(testdata, level)
        for outcome in ("pass", "fail"):
            collected += [
                Fixture(
                    level=level,
                    version=version,
                    name=file.stem,
                    allowed=outcome == "pass",
                    pod=yaml.load(file.read_bytes(), _LOADER),  # noqa: S506 - a safe loader, in C
                )
                for file in sorted((testdata / level / version / outcome).glob("*.yaml"))
            ]
    return collected


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
