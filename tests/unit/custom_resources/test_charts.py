"""Charts and kustomizations are unknown where values, parameters or patches reach GPU nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

import deciding
from each import each
from policies.engine import decide
from policies.kubernetes.paths import field_path
from webhook.tools.custom_resources import workload

POLICY = deciding.policy()

SPECS = yaml.safe_load(Path(__file__).with_name("charts.yaml").read_text())


def decided(kind: str, spec: str) -> tuple[str, list[str]]:
    api, _, kind = kind.partition(" ")
    obj: Any = {"apiVersion": api, "kind": kind, "metadata": {"name": "a"}}
    decision = decide(workload(obj | {"spec": yaml.safe_load(spec)}, POLICY), POLICY)
    return decision.verdict, [
        f"{field_path(part.path)}: {part.reason}" for part in decision.unjudged
    ]


def test_what_reaches_gpu_nodes_is_unknown_with_the_command_that_shows_the_pods() -> None:
    def holds(row: tuple[str, str, str]) -> None:
        kind, command, spec = row
        verdict, said = decided(kind, spec)
        assert verdict == "unknown", spec
        assert said, spec
        assert all(text.endswith(f"check what {command} prints") for text in said), said

    each([(k, *row) for k, rows in SPECS["reach"].items() for row in rows], holds)


def test_other_settings_of_charts_are_skipped() -> None:
    def holds(row: tuple[str, str]) -> None:
        kind, spec = row
        assert decided(kind, spec)[0] == "skipped", spec

    each([(k, spec) for k, specs in SPECS["others"].items() for spec in specs], holds)


def test_parameters_are_named_once() -> None:
    entry = r"{name: a.limits.nvidia\.com/gpu, value: 1}"
    spec = f"source: {{helm: {{parameters: [{entry}, {entry}]}}}}"
    _, said = decided("argoproj.io/v1alpha1 Application", spec)
    assert [text.partition(":")[0] for text in said] == ["spec.source.helm.parameters"]
