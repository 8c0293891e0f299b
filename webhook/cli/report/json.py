"""The reports for programs: JSON, indented by two spaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from textwrap import indent
from typing import TYPE_CHECKING, Any

import msgspec

from policies.finding import Finding
from policies.kubernetes.template import field_path
from webhook.cli.evaluate import VERDICTS, Result, Verdict
from webhook.cli.report.content import (
    AuditReport,
    CheckFormat,
    CheckRun,
    DoctorReport,
    Outcome,
    SuitesReport,
    finding_place,
)
from webhook.doctor.line import STATUSES
from webhook.documents.document import sentence
from webhook.wording import printable_json

if TYPE_CHECKING:
    from webhook.audit.pools import PoolNode, PoolState

API_VERSION = "gpufence.dev/v1alpha1"

_RESULTS = '"results": []'
"""No text in JSON is like it: its quotes would be escaped."""


class JSONReport(CheckFormat):
    """A document that is a list, or has a list of ``results``, which grows with each object."""

    def __init__(self, run: CheckRun) -> None:
        super().__init__(run)
        self._depth = 0
        self._separator = ""

    def document(self) -> Any:
        """Return the document as it is known so far, with an empty list.

        What comes before the list must not change.
        """
        raise NotImplementedError

    def entries(self, result: Result) -> Iterator[dict[str, Any]]:
        """Yield the entries of the list about an object."""
        raise NotImplementedError

    def start(self) -> str:
        start, _ = self._around()
        line = start.rpartition("\n")[2]
        self._depth = len(line) - len(line.lstrip(" "))
        return start

    def add(self, result: Result) -> str:
        text = ""
        for entry in self.entries(result):
            lines = indent(formatted(entry), " " * (self._depth + 2)).rstrip("\n")
            text += f"{self._separator}\n{lines}"
            self._separator = ","
        return text

    def end(self) -> str:
        _, end = self._around()
        return f"\n{' ' * self._depth}{end}" if self._separator else end

    def _around(self) -> tuple[str, str]:
        """Return the text before and after the entries of the list."""
        document = formatted(self.document())
        empty = _RESULTS if _RESULTS in document else "[]"
        start, _, end = document.partition(empty)
        return f"{start}{empty[:-1]}", f"]{end}"


class CheckDocument(JSONReport):
    """A CheckReport."""

    def __init__(self, run: CheckRun) -> None:
        super().__init__(run)
        self._verdicts: Counter[Verdict] = Counter()

    def document(self) -> dict[str, Any]:
        return {
            "apiVersion": API_VERSION,
            "kind": "CheckReport",
            "policy": self.run.policy,
            "results": [],
            "summary": _summary(self._verdicts),
        }

    def entries(self, result: Result) -> Iterator[dict[str, Any]]:
        self._verdicts[result.verdict] += 1
        yield _entry(result)


check = CheckDocument


def audit(report: AuditReport) -> str:
    """Return an AuditReport: a CheckReport with the state of the pools."""
    found = report.audit
    verdicts = Counter(result.verdict for result in report.results)
    return _document(
        "AuditReport",
        policy=report.policy,
        pods=found.pods,
        unmutatedPods=list(found.unmutated),
        uselessExceptions=list(found.exceptions),
        notAudited=list(found.skipped),
        pools=[_pool(state) for state in found.pools],
        # The topmost owners of Pods, and the objects that only name an owner.
        owners=[
            {"path": subject.place, "pods": subject.pods, "remark": subject.remark}
            for subject in found.subjects
            if subject.pods or subject.remark
        ],
        results=[_entry(result) for result in report.results],
        summary=_summary(verdicts),
    )


def suites(report: SuitesReport) -> str:
    """Return a TestReport."""
    states = Counter(outcome.state for outcome in report.outcomes)
    summary = {
        "cases": len(report.outcomes),
        "passed": states["passed"],
        "failed": states["failed"],
        "errors": states["error"],
        "unexercisedRules": list(report.unexercised),
    }
    return _document("TestReport", summary=summary, cases=list(map(_case, report.outcomes)))


def doctor(report: DoctorReport) -> str:
    """Return a DoctorReport."""
    counts = Counter(line.status for line in report.lines)
    lines = [line._asdict() for line in report.lines]
    summary = {status: counts[status] for status in STATUSES}
    return _document("DoctorReport", summary=summary, lines=lines)


def formatted(value: Any) -> str:
    """Return a value as JSON, with a line feed at its end."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return f"{printable_json(text)}\n"


def _document(kind: str, **fields: Any) -> str:
    return formatted({"apiVersion": API_VERSION, "kind": kind, **fields})


def _summary(verdicts: Counter[Verdict]) -> dict[str, int]:
    return {"objects": verdicts.total(), **{verdict: verdicts[verdict] for verdict in VERDICTS}}


def _entry(result: Result) -> dict[str, Any]:
    manifest, decision = result.manifest, result.decision
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
        "warnings": sum(finding.action == "warn" for finding in result.findings),
        "findings": [_finding(result, finding) for finding in result.findings],
        "excepted": [_finding(result, finding) for finding in excepted],
        "unjudged": [
            {"path": field_path(part.path), "reason": part.reason}
            for part in (decision.unjudged if decision else ())
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
        "allocatable": state.allocatable,
        "requested": state.requested,
        "waiting": state.waiting,
        "free": state.free,
        "namespaces": dict(sorted(state.by_namespace.items())),
        "nodes": [_node(node) for node in state.nodes.values()],
    }


def _node(node: PoolNode) -> dict[str, Any]:
    return {
        "name": node.name,
        "offered": node.offered,
        "free": node.free,
        "hasTaint": node.has_taint,
        "hasLabel": node.has_label,
        "cordoned": node.is_cordoned,
        "held": node.holdings,
        "trespassers": [pod.owned.full_name for pod in node.trespassers],
    }


def _case(outcome: Outcome) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "source": {"path": outcome.path, "line": outcome.line},
        "name": outcome.name,
        "result": outcome.state,
        "failures": [failure.message for failure in outcome.failures],
        "exercisedRules": sorted(outcome.exercised),
    }
    if outcome.error:
        entry["error"] = outcome.error
    return entry
