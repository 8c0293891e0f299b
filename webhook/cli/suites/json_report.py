"""What came of suites, for programs: one TestReport."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from policies.document.model import API_VERSION
from webhook.cli.suites.run import Outcome

KIND = "TestReport"


def report(outcomes: Iterable[Outcome], unexercised: Sequence[str]) -> str:
    """Return the report as JSON, indented, with a line feed at its end."""
    cases = [_case(outcome) for outcome in outcomes]
    states = Counter(case["result"] for case in cases)
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "summary": {
            "cases": len(cases),
            "passed": states["passed"],
            "failed": states["failed"],
            "errors": states["error"],
            "unexercisedRules": list(unexercised),
        },
        "cases": cases,
    }
    return f"{msgspec.json.format(msgspec.json.encode(document), indent=2).decode()}\n"


def _case(outcome: Outcome) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "source": {"path": outcome.suite.document.path, "line": outcome.line},
        "name": outcome.case.name,
        "result": outcome.state,
        "failures": [failure.message for failure in outcome.failures],
        "exercisedRules": sorted(outcome.exercised),
    }
    if outcome.error:
        entry["error"] = outcome.error
    return entry
