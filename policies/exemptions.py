"""Findings that do not count: those with an exception, and those of the stored object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from msgspec.structs import replace

from policies.finding import Finding
from policies.kubernetes.core_v1 import PodObject, PodSpec
from policies.kubernetes.objects import JSONObject, MalformedObjectError
from policies.kubernetes.pod import Pod
from policies.kubernetes.workload import Workload
from policies.policy import ExceptionEntry
from policies.requests import Scope


def apply_exceptions(
    findings: Iterable[Finding], obj: Workload, scope: Scope
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return the findings that count, and those that an exception covers.

    A finding whose last exception has expired counts; its detail names the exception.
    """
    policy, request, labels = scope.policy, scope.request, scope.facts.namespace_labels
    counting: list[Finding] = []
    excepted: list[Finding] = []
    for finding in findings:
        entries = [
            entry
            for entry in policy.exceptions
            if entry.covers(finding.rule, request.namespace, obj.kind, obj.name, labels)
        ]
        if _cover([each for each in entries if not each.has_expired(request.today)], finding):
            excepted.append(finding)
        elif _cover(entries, finding):
            expired = (each for each in entries if each.has_expired(request.today))
            last = max(expired, key=attrgetter("expires"))
            note = f"; its exception ({last.reason}) expired on {last.expires}"
            counting.append(replace(finding, detail=finding.detail + note))
        else:
            counting.append(finding)
    return tuple(counting), tuple(excepted)


def _cover(entries: Sequence[ExceptionEntry], finding: Finding) -> bool:
    """Return whether the entries are about the finding, and all that it rejects."""
    return bool(entries) and all(
        any(entry.accepts(each) for entry in entries) for each in finding.rejected
    )


def excepted_mutations(mutations: Iterable[str], obj: Workload, scope: Scope) -> frozenset[str]:
    """Return those of the mutations that leave the object as it is: an exception names them."""
    if not scope.policy.exceptions:
        return frozenset()
    request, labels = scope.request, scope.facts.namespace_labels
    return frozenset(
        rule
        for rule in mutations
        for entry in scope.policy.exceptions_of_rule.get(rule, ())
        if not entry.has_expired(request.today)
        and entry.covers(rule, request.namespace, obj.kind, obj.name, labels)
    )


def may_move(pods: Sequence[Pod], old: JSONObject | PodObject) -> bool:
    """Return whether the update lets a waiting Pod with claims be placed on other nodes.

    Its claims may resolve to other devices than at its creation, so a finding of the old Pod was
    perhaps never reported.
    """
    if pods[0].kind != "Pod" or not pods[0].spec.resource_claims:
        return False
    try:
        before = Workload(old).pods()
    except MalformedObjectError:
        return True
    return any(
        not each.spec.node_name and _placement(pods[0].spec) != _placement(each.spec)
        for each in before
    )


def _placement(spec: PodSpec) -> tuple[object, ...]:
    return spec.tolerations, spec.node_selector, spec.affinity, spec.scheduling_gates


def split_known(
    findings: Iterable[Finding], before: Iterable[Finding]
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return the new findings and the known ones.

    Each finding ``before`` accounts for one finding of the same subject matter.
    """
    left: dict[tuple[str, ...], list[Finding]] = {}
    for old in before:
        left.setdefault(_subject_matter(old), []).append(old)
    new: list[Finding] = []
    known: list[Finding] = []
    for finding in findings:
        alike = left.get(_subject_matter(finding), [])
        same = next((old for old in alike if finding.subjects <= old.subjects), None)
        if same is None:
            new.append(finding)
        else:
            known.append(finding)
            alike.remove(same)
    return tuple(new), tuple(known)


def _subject_matter(finding: Finding) -> tuple[str, ...]:
    """Return what a finding has in common with the same finding of the old object.

    Subjects are compared apart; without subjects, the detail tells. Paths do not count: an entry
    that moved in its list is not a new finding. A finding that only warned is none that denies.
    """
    detail = "" if finding.subjects else finding.detail
    return finding.rule, finding.action, finding.reason, detail
