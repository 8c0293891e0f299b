"""The fields of a CheckReport, from a report that the build generates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from gpufence_docs.tables import code, entry, table
from webhook.tools.cli.main import cli

SAMPLES = Path(__file__).parents[3] / "deploy" / "samples"
BROKEN = "apiVersion: v1\nkind: Pod\nmetadata: {name: broken}\nspec: {containers: 1}\n"
UNJUDGED = (
    "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: unjudged}\n"
    "spec: {runtimeRef: {name: torch-distributed}}\n"
)
VERDICTS = ("allowed", "mutated", "denied", "unknown", "skipped", "invalid")

_FINDING = {
    "rule": "The rule.",
    "action": "The action of the rule: `enforce`, `warn` or `audit`.",
    "path": "The path of the field, from the root of the object, as the API server writes it.",
    "line": "Its line in the file, counted from 1; null if the field is absent.",
    "column": "Its column, counted from 1.",
    "reason": "What is wrong, in a clause.",
    "detail": "What was found, and what is allowed.",
    "remediation": "How to fix it.",
    "fix[].op": "An edit that fixes it, as JSON Patch: `add` or `replace` with a `value`, or "
    "`remove`. Absent if `check --fix` cannot fix the finding.",
    "fix[].path": "The path of the edit, from the root of the object.",
}
MEANINGS = {
    "apiVersion": "Version of the report.",
    "kind": "Kind of the report.",
    "policy": "The policy: `default`, or its file.",
    "help": "The field `help` of the policy: where authors find help.",
    "results[].source.path": "The file, `<stdin>` for a pipe.",
    "results[].source.document": "Index of the document in the file, from 0.",
    "results[].source.item": "Index of the item if the document is a List; otherwise null.",
    "results[].source.line": "First line of the object.",
    "results[].object.apiVersion": "API version of the object, if it has one.",
    "results[].object.kind": "Its kind.",
    "results[].object.namespace": "Namespace in which it was checked.",
    "results[].object.name": "Its name.",
    "results[].verdict": "`allowed`, `mutated` (allowed, and its Pods are changed), `denied`, "
    "`unknown` (its Pods, or some of them, are judged only when they are created), `skipped` "
    "(it has no pod template) or `invalid`.",
    "results[].unjudged[].path": "A part of the object whose Pods are judged only when they are "
    "created.",
    "results[].unjudged[].reason": "Why its Pods cannot be judged earlier.",
    "results[].warnings": "Number of findings that are warnings.",
    **{f"results[].findings[].{key}": text for key, text in _FINDING.items()},
    **{f"results[].excepted[].{key}": text for key, text in _FINDING.items()},
    "results[].patch[].op": "What the mutations do, as JSON Patch (RFC 6902): `add`, or `replace`.",
    "results[].patch[].path": "The path of the operation, from the root of the document.",
    "results[].patch[].value": "The new value.",
    "results[].error": "For an invalid object: the error, with its place.",
    "summary.objects": "Number of objects.",
    **{f"summary.{verdict}": f"Number of objects that are {verdict}." for verdict in VERDICTS},
}
"""The description of each field. The build fails if a field is missing here or does not exist."""


def markdown() -> str:
    """Return a table of fields and a report to look at.

    Raises:
        ValueError: a report has other fields than are described.
    """
    trespasser = (SAMPLES / "web-on-gpu-nodes.yaml").read_text()
    job = (SAMPLES / "gpu-job.yaml").read_text()
    everything = _report("---\n".join([trespasser, job, UNJUDGED, BROKEN]))
    types = dict(_fields(everything, ""))
    # Excepted findings have the form of findings; this report has none.
    finding_types = {path: kind for path, kind in types.items() if ".findings[]" in path}
    types |= {path.replace(".findings", ".excepted"): kind for path, kind in finding_types.items()}
    if types.keys() != MEANINGS.keys():
        differing = ", ".join(sorted(types.keys() ^ MEANINGS.keys()))
        raise ValueError(f"the report's fields and their descriptions differ: {differing}")
    rows = [(code(path), entry(meaning, types[path])) for path, meaning in MEANINGS.items()]
    example = json.dumps(_report(trespasser), indent=2)
    return f"{table(('field', 'description'), rows)}\n## An example\n\n```json\n{example}\n```\n"


def _report(text: str) -> Any:
    completed = CliRunner().invoke(cli, ["check", "--output", "json", "-"], input=text)
    return json.loads(completed.stdout)


def _fields(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the type of each field; the value of a patch has any type."""
    if path == "results[].patch[].value":
        yield path, "any"
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _fields(inner, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for inner in value:
            yield from _fields(inner, f"{path}[]")
    else:
        yield path, _TYPES[type(value)]


_TYPES = {str: "string", int: "number", type(None): "number or null"}
