"""Holds the verdict on a custom resource against the verdicts on the Pods of its operator.

Run me as `python -m operators.compare`, as `make operators` does: it starts a control plane with
gpufence and each operator in turn, creates the operator's examples and variants of them, and writes
a table. The exit code is 1 if a verdict differs and differences.yaml has no reason for it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from controlplane.binaries import binaries
from controlplane.cluster import ControlPlane
from controlplane.gpufence import COMMAND, Server
from controlplane.webhooks import configurations, wait_until_called
from operators import kueue_scenario
from operators.audit import AuditLog, Outcome, verdict
from operators.catalog import KUEUE, OPERATORS, Operator
from operators.process import binary_of, running, source_of, succeeding
from operators.variants import service_accounts, variants

HERE = Path(__file__).parent
AT_A_TIME = 12
CUSTOM_RESOURCES = "custom-workloads.gpufence.dev"
"""The webhook that judges custom resources early: it would keep the operators from their Pods."""

JSON = dict[str, Any]


class Row(NamedTuple):
    """One workload: the verdict on the resource, and what became of its Pods."""

    operator: str
    workload: str
    variant: str
    resource: str
    outcomes: list[Outcome]
    note: str = ""

    @property
    def equal(self) -> bool:
        return self.resource == verdict(self.outcomes)


def main(arguments: list[str] | None = None) -> int:
    """Compare, write the table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="operators", description=__doc__)
    parser.add_argument("--only", default="", help="the operators to run, with commas between them")
    parser.add_argument("--examples", default="", help="a regular expression for their titles")
    parser.add_argument("--output", type=Path, default=Path("build/operators.md"))
    options = parser.parse_args(arguments)
    chosen = [o for o in OPERATORS if not options.only or o.name in options.only.split(",")]
    reasons = yaml.safe_load((HERE / "differences.yaml").read_text()) or []
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="gpufence-operators-") as temporary:
        directory = Path(temporary)
        with Server(directory / "gpufence") as server:
            for operator in chosen:
                found = _of_operator(
                    operator, options.examples, server, directory / operator.binary, reasons
                )
                for row in found:
                    rows.append(row)
                    print(_line(row), flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(_table(rows))
    unexplained = [row for row in rows if not (row.equal or row.note)]
    print(f"{len(rows)} workloads, {len(unexplained)} differences without a reason")
    return 1 if unexplained else 0


def _of_operator(
    operator: Operator, examples: str, server: Server, directory: Path, reasons: list[JSON]
) -> Iterator[Row]:
    """Run an operator, and those that it requires, on a control plane of its own."""
    started = [o for o in OPERATORS if o.name in operator.requires] + [operator]
    programs = [(each, source_of(each), binary_of(each)) for each in started]
    audit = AuditLog(directory)
    cluster = ControlPlane(directory / "cluster", binaries=binaries(), apiserver_flags=audit.flags)
    with ExitStack() as stack:
        stack.enter_context(cluster)
        _register(cluster, server)
        for each, module, program in programs:
            stack.enter_context(running(each, cluster, directory / each.name, module, program))
        if operator.completes:
            stack.enter_context(succeeding(cluster))
        if operator.name == KUEUE:
            yield from _of_kueue(cluster, audit, reasons)
        else:
            yield from _rows(operator, examples, cluster, audit, reasons)


def _register(cluster: ControlPlane, server: Server) -> None:
    wanted = configurations(server.url, server.authority)
    for configuration in wanted:
        configuration["webhooks"] = [
            webhook for webhook in configuration["webhooks"] if webhook["name"] != CUSTOM_RESOURCES
        ]
    cluster.kubectl.apply(*wanted)
    wait_until_called(cluster)


def _rows(
    operator: Operator, examples: str, cluster: ControlPlane, audit: AuditLog, reasons: list[JSON]
) -> Iterator[Row]:
    workloads = [
        (title, variant, _without_namespace(changed))
        for file, obj in _examples(operator)
        if re.search(examples, title := f"{file} {obj['kind']}/{_name(obj)}")
        for variant, changed in variants(obj)
    ]

    verdicts = _check([obj for _, _, obj in workloads])

    def row(workload: tuple[str, str, JSON], resource: str) -> Row:
        title, variant, obj = workload
        outcomes, note = _create(obj, cluster, audit)
        row = Row(operator.name, title, variant, resource, outcomes, note)
        return row if row.equal or note else row._replace(note=_reason(row, reasons))

    # Almost all of the time goes into waiting for the operator.
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield from pool.map(row, workloads, verdicts)


def _create(obj: JSON, cluster: ControlPlane, audit: AuditLog) -> tuple[list[Outcome], str]:
    """Create the workload in a namespace of its own; return the answers to its Pods, or a note."""
    namespace = cluster.create_namespace("workload-")
    for account in service_accounts(obj) - {"default"}:
        cluster.kubectl("create", "serviceaccount", account, "-n", namespace)
    create = ("create", "-n", namespace, "-f", "-")
    done = cluster.kubectl(*create, stdin=json.dumps(obj), check=False)
    if done.returncode:
        return [], f"rejected: {done.stderr.strip()[:200]}"
    outcomes = audit.settled(namespace)
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")
    return outcomes, ""


def _name(obj: JSON) -> str:
    return str(obj["metadata"].get("name") or f"{obj['metadata'].get('generateName', '')}*")


def _without_namespace(obj: JSON) -> JSON:
    metadata = {key: value for key, value in obj["metadata"].items() if key != "namespace"}
    return {**obj, "metadata": metadata}


def _of_kueue(cluster: ControlPlane, audit: AuditLog, reasons: list[JSON]) -> Iterator[Row]:
    for name, variant, job, outcomes in kueue_scenario.rows(cluster, audit):
        row = Row(KUEUE, name, variant, _check([job])[0], outcomes)
        yield row if row.equal else row._replace(note=_reason(row, reasons))


def _examples(operator: Operator) -> Iterator[tuple[str, JSON]]:
    """Yield the objects of the examples that the operator makes Pods from, each once."""
    seen = set()
    root = source_of(operator) if operator.examples_in_module else HERE
    for pattern in operator.examples:
        for file in sorted(root.glob(pattern)):
            try:
                objects = [obj for obj in yaml.safe_load_all(file.read_text()) if obj]
            except yaml.YAMLError:
                continue
            for obj in objects:
                text = json.dumps(obj, sort_keys=True, default=str)
                if obj.get("kind") in operator.kinds and text not in seen:
                    seen.add(text)
                    yield str(file.relative_to(root)), obj


def _check(objects: list[JSON]) -> list[str]:
    """Return what `gpufence check` says of each object."""
    done = subprocess.run(
        [COMMAND, "check", "--output", "json", "-"],
        input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}),
        capture_output=True,
        text=True,
        check=False,
    )
    results = json.loads(done.stdout)["results"]
    verdicts = {result["source"]["item"]: result["verdict"] for result in results}
    return [verdicts[index] for index in range(len(objects))]


def _reason(row: Row, reasons: Iterable[JSON]) -> str:
    for entry in reasons:
        if (
            all(
                entry.get(key, value) == value
                for key, value in (
                    ("operator", row.operator),
                    ("variant", row.variant),
                    ("resource", row.resource),
                    ("pods", verdict(row.outcomes)),
                )
            )
            and entry.get("workload", "") in row.workload
        ):
            return str(entry["reason"])
    return ""


def _pods(outcomes: list[Outcome]) -> str:
    counts = Counter((outcome.resource, outcome.verdict) for outcome in outcomes)
    parts = [
        f"{count} {word}" if resource == "pods" else f"{count} {resource} {word}"
        for (resource, word), count in counts.items()
        if resource == "pods" or word in ("denied", "failed")
    ]
    return ", ".join(parts) or "none"


def _line(row: Row) -> str:
    mark = "equal" if row.equal else row.note or "DIFFERENT"
    failed = next((o.message for o in row.outcomes if o.verdict == "failed"), "")
    title = f"{row.operator}  {row.workload}  {row.variant}"
    return f"{title}: {row.resource} / {_pods(row.outcomes)}  {mark} {failed[:200]}".rstrip()


def _table(rows: list[Row]) -> str:
    lines = [
        "| operator | workload | variant | resource | Pods | equal |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        equal = "yes" if row.equal else row.note or "no"
        cells = (row.operator, row.workload, row.variant, row.resource, _pods(row.outcomes), equal)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
