"""What a remediation says, applied literally, resolves its finding: over the cases of all rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from cases.loading import Case, cases_of_check
from each import each
from policies.finding import Finding
from policies.registry import CHECKS
from remedies import remedies

JSON = dict[str, Any]

CASES = [
    case
    for check in CHECKS
    for case in cases_of_check(check.id)
    # Where the policy turns it off, the toleration that gpufence adds opens other pools.
    if not (
        case.passes or case.is_update or 'pool-node-affinity: "off"' in case.manifest.read_text()
    )
]


def applied(case: Case) -> Iterator[tuple[Finding, str, JSON]]:
    """Yield the remedies of a case's findings, each with the object that follows it."""
    for finding in case.decide().findings:
        for kind, followed in remedies(case.object, finding):
            yield finding, kind, followed


def alike(case: Case, obj: JSON, finding: Finding) -> int:
    """Return how many findings of the object say the same."""
    found = case.decide(obj).findings
    return sum((each.rule, each.reason) == (finding.rule, finding.reason) for each in found)


def test_law_what_a_remediation_says_resolves_its_finding() -> None:
    def resolves(case: Case) -> None:
        for finding, kind, followed in applied(case):
            before, after = alike(case, case.object, finding), alike(case, followed, finding)
            assert after < before, (kind, finding.path, finding.remediation)

    each(CASES, resolves)


def test_most_kinds_of_remedies_are_applied() -> None:
    kinds = Counter(kind for case in CASES for _, kind, _ in applied(case))
    assert kinds.keys() == {"edits", "request", "count", "selection", "removal"}
    assert kinds.total() > 150, kinds
