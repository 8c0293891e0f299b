"""How severe results are, and how many objects have which verdict."""

from __future__ import annotations

from collections import Counter

from policies.finding import ACTIONS
from webhook.cli.manifests.evaluate import Result, Verdict
from webhook.cli.report.lines import Role
from webhook.wording import counted

_MOST_SEVERE_FIRST: tuple[Verdict, ...] = (
    "invalid",
    "denied",
    "unknown",
    "mutated",
    "allowed",
    "skipped",
)


def by_severity(result: Result) -> int:
    """Return a key that sorts broken objects first, then by the most severe finding."""
    if result.error is not None:
        return -1
    findings = result.decision.findings if result.decision else ()
    return min((ACTIONS.index(finding.action) for finding in findings), default=len(ACTIONS))


def verdict_counts(verdicts: Counter[Verdict]) -> list[tuple[str, Role]]:
    """Return the counts as spans, the most severe verdict first: ``: 1 denied, 2 allowed``."""
    spans: list[tuple[str, Role]] = []
    for verdict in _MOST_SEVERE_FIRST:
        if verdicts[verdict]:
            start = ", " if spans else ": "
            spans += [(start, ""), (f"{verdicts[verdict]} {verdict}", verdict)]
    return spans


def summary_text(verdicts: Counter[Verdict]) -> str:
    """Return the summary as text: ``3 objects: 1 denied, 2 allowed``."""
    counts = "".join(text for text, _ in verdict_counts(verdicts))
    return f"{counted(verdicts.total(), 'object')}{counts}"
