"""The reports for programs: JSON, indented by two spaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from policies.finding import Finding
from policies.kubernetes.paths import field_path
from webhook.documents.document import sentence
from webhook.tools.cli.evaluate import VERDICTS, Result
from webhook.tools.cli.report.content import (
    AuditReport,
    CheckReport,
    Outcome,
    SuitesReport,
    finding_place,
)
from webhook.tools.doctor import STATUSES, DoctorLine
from webhook.wording import printable_json

if TYPE_CHECKING:
    from webhook.tools.audit.pools import PoolNode, PoolState
    from webhook.tools.cli.policy_diff.comparison import Comparison

API_VERSION = "gpufence.dev/v1beta1"


def check(report: CheckReport) -> Iterator[str]:
    """Yield a CheckReport."""
    yield _document("CheckReport", policy=report.policy, help=report.help, **_results(report))


def audit(report: AuditReport) -> Iterator[str]:
    """Yield an AuditReport: a CheckReport with the state of the pools."""
    found = report.audit
    yield _document(
        "AuditReport",
        policy=report.policy,
        help=report.help,
        pods=found.pods,
        unmutatedPods=list(found.unmutated),
        uselessExceptions=list(found.exceptions),
        notAudited=list(found.skipped),
        pools=[_pool(state) for state in found.pools],
        waste=waste(report),
        lists=[{"title": title, "lines": list(lines)} for title, lines in report.lists],
        **_results(report),
    )


def suites(report: SuitesReport) -> Iterator[str]:
    """Yield a TestReport."""
    states = Counter(outcome.state for outcome in report.outcomes)
    summary = {
        "cases": len(report.outcomes),
        "passed": states["passed"],
        "failed": states["failed"],
        "errors": states["error"],
    }
    yield _document("TestReport", summary=summary, cases=list(map(_case, report.outcomes)))


def diff(report: Comparison) -> Iterator[str]:
    """Yield a PolicyDiff."""
    yield _document(
        "PolicyDiff",
        alike=report.is_alike,
        fields=[
            {key: value for key, value in each._asdict().items() if key != "steps"}
            for each in report.fields
        ],
        consequences=report.consequences,
        notes=report.notes,
    )


def doctor(lines: Sequence[DoctorLine]) -> Iterator[str]:
    """Yield a DoctorReport."""
    counts = Counter(line.status for line in lines)
    summary = {status: counts[status] for status in STATUSES}
    yield _document("DoctorReport", summary=summary, lines=[line._asdict() for line in lines])


def formatted(value: Any) -> str:
    """Return a value as JSON, with a line feed at its end."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return f"{printable_json(text)}\n"


def _document(kind: str, **fields: Any) -> str:
    return formatted({"apiVersion": API_VERSION, "kind": kind, **fields})


def _results(report: CheckReport) -> dict[str, Any]:
    verdicts = Counter(result.verdict for result in report.results)
    counts = {verdict: verdicts[verdict] for verdict in VERDICTS}
    return {
        "results": list(map(_entry, report.results)),
        "summary": {"objects": verdicts.total(), **counts},
    }


def _entry(result: Result) -> dict[str, Any]:
    manifest, decision = result.manifest, result.decision
    entry: dict[str, Any] = {
        "source": {
            "path": manifest.document.path,
            "document": manifest.document.index,
            "item": manifest.item,
            "line": manifest.line,
        },
        "object": _object(result),
        "verdict": result.verdict,
        "warnings": sum(finding.action == "warn" for finding in result.findings),
        "findings": [_finding(result, finding) for finding in result.findings],
        "excepted": [_finding(result, finding) for finding in decision.excepted],
        "unjudged": [
            {"path": field_path(part.path), "reason": part.reason} for part in decision.unjudged
        ],
        "patch": msgspec.to_builtins(result.operations),
    }
    if note := result.note or (result.duplicate and sentence(manifest.document, result.duplicate)):
        entry["note"] = note
    if result.error is not None:
        entry["error"] = sentence(manifest.document, result.error)
    return entry


def _object(result: Result) -> dict[str, str | None] | None:
    if result.manifest.value is None:
        return None
    return {
        "apiVersion": result.api_version or None,
        "kind": result.kind or None,
        "namespace": result.namespace or None,
        "name": result.name or None,
    }


def _finding(result: Result, finding: Finding) -> dict[str, Any]:
    place = finding_place(result, finding)
    entry: dict[str, Any] = {
        "rule": finding.rule,
        "action": finding.action,
        "path": finding.path,
        "line": place.line or None,
        "column": place.column or None,
        "reason": finding.reason,
        "detail": finding.detail,
        "remediation": finding.remediation,
    }
    if fix := result.fix(finding):
        entry["fix"] = [
            {"op": edit.kind, "path": edit.path}
            | ({} if edit.kind == "remove" else {"value": edit.value})
            for edit in fix
        ]
    return entry


def _pool(state: PoolState) -> dict[str, Any]:
    return {
        "name": state.pool.name,
        "allocatable": state.offered,
        "requested": state.requested,
        "waiting": state.waiting,
        "free": state.free,
        "nodes": [_node(node) for node in state.nodes.values()],
    }


def waste(report: AuditReport) -> dict[str, Any]:
    """Return the table of held, waiting and wasted devices."""
    rows = [
        {
            "pool": row.pool,
            "namespace": row.namespace,
            "kind": row.kind,
            "resource": row.resource,
            "devices": row.devices,
            "deviceHours": round(row.hours, 3),
            "cost": None if row.cost is None else round(row.cost, 2),
            "pods": row.pods,
            "nodes": row.nodes,
        }
        for row in report.waste
    ]
    return {"hours": round(report.hours, 3), "rows": rows}


def _node(node: PoolNode) -> dict[str, Any]:
    return {
        "name": node.name,
        "offered": node.offered,
        "free": node.free,
        "hasTaint": node.has_taint,
        "hasLabel": not node.unselected,
        "cordoned": node.details.is_cordoned,
        "held": [
            {"namespace": pod.owned.namespace, "pod": pod.owned.name, "resource": name, "count": n}
            for pod, name, n in node.holdings
        ],
        "trespassers": [pod.owned.full_name for pod in node.trespassers],
    }


def _case(outcome: Outcome) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "source": {"path": outcome.path, "line": outcome.line},
        "name": outcome.name,
        "result": outcome.state,
        "failures": [failure.message for failure in outcome.failures],
    }
    if outcome.error:
        entry["error"] = outcome.error
    return entry
