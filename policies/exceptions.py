"""Findings that an exception of the policy covers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date

from msgspec.structs import replace

from policies.facts import Request
from policies.finding import Action, Finding
from policies.kubernetes.workload import Workload
from policies.policy import ExceptionEntry, Policy


def useless_exceptions(policy: Policy, today: date | None) -> Iterator[tuple[int, str]]:
    """Yield the index of each exception that can cover no finding, and why."""
    for index, entry in enumerate(policy.exceptions):
        if entry.has_expired(today):
            yield index, f"expired on {entry.expires}"
        elif not entry.namespaces.prefixes and (
            entry.namespaces.exact <= policy.exemptions.namespaces
        ):
            yield index, "covers nothing: its namespaces are exempt"
        elif entry.rules and all(
            actions[rule] == "off" for actions in _actions(entry, policy) for rule in entry.rules
        ):
            yield index, "covers nothing: its rules are off in its namespaces"


def _actions(entry: ExceptionEntry, policy: Policy) -> Iterable[Mapping[str, Action]]:
    if entry.namespaces.prefixes:
        return policy.action_sets
    return [policy.actions_in(namespace) for namespace in entry.namespaces.exact]


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
