"""The report for programs: one TestReport."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from webhook.cli.report.content import Outcome, SuitesReport, json_document


def report(content: SuitesReport) -> Iterator[str]:
    """Yield the report as JSON."""
    states = Counter(outcome.state for outcome in content.outcomes)
    summary = {
        "cases": len(content.outcomes),
        "passed": states["passed"],
        "failed": states["failed"],
        "errors": states["error"],
        "unexercisedRules": list(content.unexercised),
    }
    cases = [_case(outcome) for outcome in content.outcomes]
    yield json_document("TestReport", summary=summary, cases=cases)


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
