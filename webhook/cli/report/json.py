"""The report for programs: one CheckReport."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from policies.finding import Finding
from policies.policy import API_VERSION
from webhook.cli.evaluate import VERDICTS, Result
from webhook.cli.manifests.pointer import pointer
from webhook.cli.report.sentence import sentence
from webhook.patch import diff

KIND = "CheckReport"


def report(results: Iterable[Result]) -> bytes:
    """Return the report as JSON, indented, with a line feed at its end."""
    entries = [_entry(result) for result in results]
    verdicts = Counter(entry["verdict"] for entry in entries)
    summary = {"objects": len(entries)} | {verdict: verdicts[verdict] for verdict in VERDICTS}
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "summary": summary,
        "results": entries,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


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
        "findings": [_finding(finding) for finding in decision.findings] if decision else [],
        "patch": (
            diff(decision.original, decision.mutated, pointer(manifest.path)) if decision else []
        ),
    }
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


def _finding(finding: Finding) -> dict[str, str]:
    return {
        "rule": finding.rule,
        "action": finding.action,
        "path": finding.path,
        "reason": finding.reason,
        "detail": finding.detail,
        "advice": finding.advice,
    }
