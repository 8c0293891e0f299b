"""GPU Pod that violates the Pod Security profile `restricted`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy

from policies.context import Context
from policies.facts import Facts
from policies.finding import Finding
from policies.kubernetes.editor import Editor
from policies.kubernetes.pod import Pod
from policies.kubernetes.pod_security import violations
from policies.kubernetes.pod_security.view import NEWEST, Versions
from policies.rules import set_restricted_security_context

ID = "unrestricted-gpu-pod"

_ENFORCE = "pod-security.kubernetes.io/enforce"
_PINNED = re.compile(r"v1\.(\d{1,4})")


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each control of the profile that the Pod fails."""
    level = context.hardening.level
    if level == "off":
        return
    completed = context.actions.written.get(set_restricted_security_context.ID) == "enforce"
    if set_restricted_security_context.ID in context.excepted:
        # What the mutation would add is not missing.
        pod = _completed(pod, context)
    versions = _versions(context.facts)
    of = "" if versions.oldest >= NEWEST else f" of version v1.{versions.oldest}"
    for violation in violations(pod, level, versions, completed=completed):
        yield Finding(
            ID,
            pod.at(violation.path),
            violation.reason,
            f'{violation.found}; Pod Security "{level}"{of} accepts {violation.accepted}',
            violation.remediation,
            subjects=violation.subjects,
            rejected=violation.rejected,
        )


def _completed(pod: Pod, context: Context) -> Pod:
    """Return a copy of the Pod with the changes of the mutation that an exception keeps off it."""
    copy = Pod(deepcopy(pod.spec), deepcopy(pod.metadata), pod.template)
    changes = [*set_restricted_security_context.changes(copy, context)]
    Editor(copy).apply(changes, set_restricted_security_context.ID)
    copy.changed()
    return copy


def _versions(facts: Facts) -> Versions:
    """Return the version of the cluster, and the one that the namespace pins.

    A label of the namespace cannot relax the policy: the Pod must meet both.
    """
    own = NEWEST if facts.kubernetes is None else facts.kubernetes
    labels = facts.namespace_labels or {}
    if labels.get(_ENFORCE) not in ("baseline", "restricted"):
        return Versions(own, own)
    pinned = _PINNED.fullmatch(labels.get(f"{_ENFORCE}-version", ""))
    other = int(pinned[1]) if pinned else own
    return Versions(min(own, other), max(own, other))
