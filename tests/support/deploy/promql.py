"""Prometheus' own parser of expressions, built from the pinned Go module in promql/."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from controlplane.gobuild import program

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Expression:
    """A parsed expression, or its error."""

    error: str
    selected: dict[str, set[str]]
    """The series that are selected, with the labels that they are selected by."""
    grouping: set[str]
    """The labels that are grouped or matched by."""
    bare: set[str]
    """The series without a range, such as that of rate()."""


def binary() -> Path:
    """Return the path of the parser, having built it where the cache has none."""
    return program("promql", Path(__file__).with_name("promql"), ".", "Prometheus' parser")


def parse(parser: Path, expressions: Sequence[str]) -> list[Expression]:
    """Parse expressions with ``parser``, which is what ``binary`` returns."""
    done = subprocess.run(
        [parser], input=json.dumps(expressions), capture_output=True, text=True, check=True
    )
    return [
        Expression(
            error=parsed["error"],
            selected=_merged(parsed["selected"]),
            grouping=set(parsed["grouping"]),
            bare=set(parsed["bare"]),
        )
        for parsed in json.loads(done.stdout)
    ]


def _merged(selected: list[dict[str, object]]) -> dict[str, set[str]]:
    merged: dict[str, set[str]] = {}
    for selector in selected:
        labels = selector["labels"]
        assert isinstance(labels, list)
        merged.setdefault(str(selector["name"]), set()).update(labels)
    return merged
