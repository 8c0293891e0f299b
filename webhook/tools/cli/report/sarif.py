"""SARIF 2.1.0 for code scanning: every rule with its page, every finding with its place.

Source: the OASIS standard of that name with errata 01, and the part of it that GitHub's code
scanning reads (docs.github.com, "SARIF support for code scanning"). Excepted findings are
suppressed results. A broken manifest is a notification, because no rule has found it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from policies.finding import Action, Finding
from policies.registry import RULES, Rule
from webhook.documents.document import explanation
from webhook.tools.cli.evaluate import Result
from webhook.tools.cli.fixes import Replacement, replacements
from webhook.tools.cli.report.content import (
    CheckReport,
    Place,
    finding_place,
    fingerprint,
    object_name,
    object_place,
    page_of,
    paragraph,
    reasons,
    remediation,
    repository_path,
    rule_page,
)
from webhook.tools.cli.report.json import formatted
from webhook.wording import printable

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
FINGERPRINT = "gpufence/v1"
_ROOT = "%SRCROOT%"
_LEVELS: dict[Action, str] = {"enforce": "error", "warn": "warning", "audit": "note", "off": "none"}
_INDEXES = {rule.id: index for index, rule in enumerate(RULES)}
_LONGEST_DESCRIPTION = 1024  # that GitHub shows


def check(report: CheckReport) -> Iterator[str]:
    """Yield the log."""
    results: list[dict[str, Any]] = []
    notifications: list[dict[str, Any]] = []
    occurrences: Counter[str] = Counter()
    for result in report.results:
        if result.error is not None:
            text = printable(explanation(result.manifest.document, result.error))
            location = _location(result, object_place(result))
            notifications.append(
                {"level": "error", "message": {"text": text}, "locations": [location]}
            )
        results += _results(result, occurrences)
    invocation: dict[str, Any] = {"executionSuccessful": not notifications}
    if notifications:
        invocation["toolExecutionNotifications"] = notifications
    run = {
        "tool": {
            "driver": {
                "name": "gpufence",
                "version": version("gpufence"),
                "rules": [_rule(rule) for rule in RULES],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {
            _ROOT: {"description": {"text": "The working directory of gpufence."}}
        },
        "results": results,
        "invocations": [invocation],
    }
    yield formatted({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _results(result: Result, occurrences: Counter[str]) -> Iterator[dict[str, Any]]:
    """Yield a result for each finding."""
    for finding in result.findings:
        yield _result(result, finding, occurrences) | {"suppressions": []}
    for finding in result.decision.excepted:
        text = "An exception in the policy covers this finding."
        suppression = {"kind": "external", "status": "accepted", "justification": text}
        yield _result(result, finding, occurrences) | {"suppressions": [suppression]}


def _rule(rule: Rule) -> dict[str, Any]:
    text = page_of(rule)
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": " ".join(reasons(rule))[:_LONGEST_DESCRIPTION]},
        "helpUri": rule_page(rule.id),
        "help": {"text": text, "markdown": f"# {text}"},
        "defaultConfiguration": {"level": _LEVELS[rule.default]},
        "properties": {"tags": ["kubernetes", "gpu"]},
    }


def _result(result: Result, finding: Finding, occurrences: Counter[str]) -> dict[str, Any]:
    location = _location(result, finding_place(result, finding), finding.path)
    replaced = replacements(result, finding)
    return {
        "ruleId": finding.rule,
        "ruleIndex": _INDEXES[finding.rule],
        "level": _LEVELS[finding.action],
        "message": {"text": printable(paragraph(finding))},
        "locations": [location],
        "partialFingerprints": {FINGERPRINT: fingerprint(result, finding, occurrences)},
        **({"fixes": [_fix(result, finding, replaced)]} if replaced else {}),
    }


def _fix(result: Result, finding: Finding, replaced: Iterable[Replacement]) -> dict[str, Any]:
    artifact = _artifact(result.manifest.document.path)
    replacements = [
        {"deletedRegion": _region(part), "insertedContent": {"text": "".join(part.added)}}
        for part in replaced
    ]
    return {
        "description": {"text": printable(remediation(finding))},
        "artifactChanges": [{"artifactLocation": artifact, "replacements": replacements}],
    }


def _region(part: Replacement) -> dict[str, int]:
    """Return the region of the lines that are removed; an empty one if none is."""
    end, column = part.line + len(part.removed), 1
    if part.removed and not part.removed[-1].endswith("\n"):
        end, column = end - 1, len(part.removed[-1]) + 1
    return {"startLine": part.line, "startColumn": 1, "endLine": end, "endColumn": column}


def _location(result: Result, place: Place, field: str = "") -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": _artifact(place.path)}
    if place.line:
        region = {"startLine": place.line, "endLine": place.line}
        if place.column:
            region["startColumn"] = place.column
            region["endColumn"] = place.end or place.column + 1
        physical["region"] = region
    location: dict[str, Any] = {"physicalLocation": physical}
    if name := object_name(result):
        short, qualified = result.name or name, f"{name}/{field}" if field else name
        location["logicalLocations"] = [
            {
                "name": printable(short),
                "fullyQualifiedName": printable(qualified),
                "kind": "object",
            }
        ]
    return location


def _artifact(path: str) -> dict[str, Any]:
    relative = repository_path(path)
    if relative is None:
        return {"uri": quote(path.strip("<>"))}
    if Path(relative).is_absolute():
        return {"uri": Path(relative).as_uri()}
    return {"uri": quote(relative), "uriBaseId": _ROOT}
