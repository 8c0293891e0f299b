"""The report for programs: one CheckReport."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from policies.finding import Finding
from policies.kubernetes.template import field_path
from webhook.cli.manifests.evaluate import VERDICTS, Result, Verdict
from webhook.cli.report.content import API_VERSION, CheckReport
from webhook.cli.report.json_stream import streamed
from webhook.cli.report.places import finding_place
from webhook.documents.documents import sentence
from webhook.documents.fields import pointer


def report(content: CheckReport) -> Iterator[str]:
    """Yield the report as JSON, object by object; the summary comes last."""
    yield from report_of_kind("CheckReport", content)


def report_of_kind(kind: str, content: CheckReport, **fields: Any) -> Iterator[str]:
    """Yield a report with more ``fields`` than those of a CheckReport, before its results."""
    verdicts: Counter[Verdict] = Counter()

    def entries() -> Iterator[dict[str, Any]]:
        for result in content.results:
            verdicts[result.verdict] += 1
            yield _entry(result)

    def summary() -> dict[str, Any]:
        counts = {verdict: verdicts[verdict] for verdict in VERDICTS}
        return {"summary": {"objects": verdicts.total(), **counts}}

    head = {"apiVersion": API_VERSION, "kind": kind, "policy": content.policy, **fields}
    yield from streamed(head, entries(), summary)
    yield "\n"


def _entry(result: Result) -> dict[str, Any]:
    manifest, decision = result.manifest, result.decision
    findings = decision.findings if decision else ()
    excepted = decision.excepted if decision else ()
    entry: dict[str, Any] = {
        "source": {
            "path": manifest.document.path,
            "document": manifest.document.index,
            "item": manifest.item,
            "line": manifest.line,
        },
        "object": _object(result),
        "verdict": result.verdict,
        "warnings": sum(finding.action == "warn" for finding in findings),
        "findings": [_finding(result, finding) for finding in findings],
        "excepted": [_finding(result, finding) for finding in excepted],
        "unjudged": [
            {"path": field_path(part.path), "reason": part.reason}
            for part in (decision.unjudged if decision else ())
        ],
        "patch": [
            {"op": "add", "path": pointer(manifest.path) + operation.path, "value": operation.value}
            for operation in (decision.operations if decision else ())
        ],
    }
    if result.note:
        entry["note"] = result.note
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
    return {
        "rule": finding.rule,
        "action": finding.action,
        "path": finding.path,
        "line": place.line or None,
        "column": place.column or None,
        "reason": finding.reason,
        "detail": finding.detail,
        "remediation": finding.remediation,
    }
