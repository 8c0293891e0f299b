"""Updates: findings of the stored object do not count again.

Controllers must be able to remove finalizers and to scale, whatever the policy finds today.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from policies.finding import Finding
from policies.kubernetes.core_v1 import PodSpec
from policies.kubernetes.decoding import MalformedObjectError
from policies.kubernetes.pod import Pod
from policies.kubernetes.workload import Workload


def may_move(pods: Sequence[Pod], old: Workload) -> bool:
    """Return whether the update lets a waiting Pod with claims be placed on other nodes.

    Its claims may resolve to other devices than at its creation, so a finding of the old Pod was
    perhaps never reported.
    """
    pod = pods[0]
    if pod.kind != "Pod" or not pod.spec.resource_claims:
        return False
    try:
        before = old.pod_spec()
    except MalformedObjectError:
        return False
    return (
        before is not None and not before.node_name and _placement(pod.spec) != _placement(before)
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
    that moved in its list is not a new finding.
    """
    return finding.rule, finding.reason, "" if finding.subjects else finding.detail
