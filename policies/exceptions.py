"""Findings that an exception of the policy covers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from msgspec.structs import replace

from policies.facts import Request
from policies.finding import Finding
from policies.kubernetes.workload import Workload
from policies.policy import Policy


def apply_exceptions(
    findings: Iterable[Finding], obj: Workload, policy: Policy, request: Request
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return the findings that count, and those that an exception covers.

    A finding whose last exception has expired counts; its detail names the exception.
    """
    if not policy.exceptions:
        return tuple(findings), ()
    counting: list[Finding] = []
    excepted: list[Finding] = []
    for finding in findings:
        entries = [
            entry
            for entry in policy.exceptions
            if entry.covers(finding.rule, request.namespace, obj.kind, obj.name)
        ]
        if any(not entry.has_expired(request.today) for entry in entries):
            excepted.append(finding)
        elif entries:
            last = max(entries, key=lambda entry: entry.expires or date.max)
            note = f"; its exception ({last.reason}) expired on {last.expires}"
            counting.append(replace(finding, detail=finding.detail + note))
        else:
            counting.append(finding)
    return tuple(counting), tuple(excepted)
