"""Prometheus' own parser and engine of expressions, built from the pinned Go module in promql/."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.gobuild import program


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


Recorded = Mapping[str, Sequence[float | None]]
"""Samples by the series that they belong to, such as `up{job="a"}`; None where there is none."""

STEP_SECONDS = 30


def evaluate(engine: Path, recorded: Mapping[str, Recorded]) -> dict[str, list[set[str]]]:
    """Return the results of expressions over what is recorded for each, by step.

    The first sample is of second 0. A result is the text of its labels.
    """
    asked = [
        {
            "expression": expression,
            "step": STEP_SECONDS,
            "steps": max(map(len, series.values())),
            "series": [
                {"labels": _labels(name), "samples": samples} for name, samples in series.items()
            ],
        }
        for expression, series in recorded.items()
    ]
    done = subprocess.run(
        [engine, "evaluate"], input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    found = [
        [{json.dumps(labels, sort_keys=True) for labels in step} for step in steps]
        for steps in json.loads(done.stdout)
    ]
    return dict(zip(recorded, found, strict=True))


def _labels(series: str) -> dict[str, str]:
    name, _, labels = series.partition("{")
    return {"__name__": name, **dict(re.findall(r'(\w+)="([^"]*)"', labels))}


def _merged(selected: list[dict[str, object]]) -> dict[str, set[str]]:
    merged: dict[str, set[str]] = {}
    for selector in selected:
        labels = selector["labels"]
        assert isinstance(labels, list)
        merged.setdefault(str(selector["name"]), set()).update(labels)
    return merged
