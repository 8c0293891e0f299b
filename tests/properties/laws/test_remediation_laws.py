"""What a remediation says, applied literally, resolves its finding: over the cases of all rules."""

from __future__ import annotations

from collections import Counter

from cases.loading import cases_of_check
from policies.registry import CHECKS
from remedies import FORMS, follow

POLICY_AT_FAULT = {"pool-trespass/fail/the-toleration-of-another-tenants-model"}
"""Without node affinity, the toleration that gpufence adds opens another pool as well."""


def test_law_what_a_remediation_says_resolves_its_finding() -> None:
    kinds: Counter[str] = Counter()
    wrong = []
    for case in (case for check in CHECKS for case in cases_of_check(check.id)):
        if case.passes or case.is_update or str(case) in POLICY_AT_FAULT:
            continue
        try:
            for followed in follow(case.object, case.decide):
                kinds.update(followed.kinds)
        except AssertionError as error:
            wrong.append(f"{case}: {error}")
    assert not wrong, "\n".join(wrong)
    assert kinds.keys() == {"edits", *FORMS}
