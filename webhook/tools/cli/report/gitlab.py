"""Code Quality for merge requests of GitLab, which shows each finding at its line.

Source: docs.gitlab.com, "Code Quality", "Code Quality report format".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from policies.finding import Action
from webhook.documents.document import explanation
from webhook.tools.cli.evaluate import Result
from webhook.tools.cli.report.content import (
    CheckReport,
    Place,
    finding_place,
    fingerprint,
    object_place,
    paragraph,
    repository_path,
)
from webhook.tools.cli.report.json import formatted
from webhook.wording import printable

_SEVERITIES: dict[Action, str] = {"enforce": "critical", "warn": "minor", "audit": "info"}


def check(report: CheckReport) -> Iterator[str]:
    """Yield a list with an entry for each finding, and for each broken object."""
    occurrences: Counter[str] = Counter()
    entries: list[dict[str, Any]] = []
    for result in report.results:
        entries += _entries(result, occurrences)
    yield formatted(entries)


def _entries(result: Result, occurrences: Counter[str]) -> Iterator[dict[str, Any]]:
    if result.error is not None:
        text = explanation(result.manifest.document, result.error)
        place = object_place(result)
        yield _entry(place, "invalid-manifest", text, "blocker", f"{place}: {text}")
    for finding in result.findings:
        severity = _SEVERITIES.get(finding.action, "info")
        identity = fingerprint(result, finding, occurrences)
        text = f"{result.title}: {paragraph(finding)}"
        yield _entry(finding_place(result, finding), finding.rule, text, severity, identity)


def _entry(place: Place, rule: str, text: str, severity: str, identity: str) -> dict[str, Any]:
    return {
        "description": printable(text),
        "check_name": rule,
        "fingerprint": identity,
        "severity": severity,
        "location": {
            "path": repository_path(place.path) or place.path,
            "lines": {"begin": max(1, place.line)},
        },
    }
