"""GPU Pod that violates the Pod Security profile `restricted`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from functools import lru_cache

from policies.context import Context
from policies.finding import Action, Finding
from policies.kubernetes.editor import Editor
from policies.kubernetes.pod import Pod
from policies.kubernetes.pod_security import Level, violations
from policies.kubernetes.pod_security.view import Violation
from policies.kubernetes.profile_versions import LATEST_VERSION, NEWEST, Versions
from policies.rules import set_restricted_security_context

ID = "unrestricted-gpu-pod"

_ENFORCE = "pod-security.kubernetes.io/enforce"
_PINNED = re.compile(r"v1\.(\d{1,4})")


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each control of the profiles that the Pod fails."""
    hardening = context.hardening
    versions = _versions(hardening.version, context)
    rejected: set[tuple[str, str]] = set()
    level: Level | None = None if hardening.level == "off" else hardening.level
    if level:
        completed = context.actions.written.get(set_restricted_security_context.ID) == "enforce"
        if set_restricted_security_context.ID in context.excepted:
            # What the mutation would add is not missing.
            pod = _completed(pod, context)
        for violation in violations(pod, level, versions, completed=completed):
            rejected |= violation.rejected
            yield _finding(violation, pod, level, versions, "enforce")
    if warning := hardening.warning:
        for violation in violations(pod, warning, versions, besides=level):
            # A control of both profiles rejects more in the stricter one, or the same.
            if not violation.rejected <= rejected:
                yield _finding(violation, pod, warning, versions, "warn")


def _finding(
    violation: Violation, pod: Pod, level: Level, versions: Versions, action: Action
) -> Finding:
    oldest, newest = versions
    of = "" if oldest >= NEWEST else f" of version v1.{oldest}"
    if newest > oldest:
        of = f" of versions v1.{oldest} and v1.{newest}"
    return Finding(
        ID,
        pod.at(violation.path),
        violation.reason,
        f'{violation.found}; Pod Security "{level}"{of} accepts {violation.accepted}',
        violation.remediation,
        action,
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


def _versions(given: str, context: Context) -> Versions:
    """Return the version of the policy, and the one that the namespace enforces.

    A label of the namespace cannot relax the policy: the Pod must meet both. So it must meet each
    version that the policy has for the namespace if its unknown labels decide.
    """
    facts = context.facts
    named = (given, *context.actions.possible.get("version", ()))
    labels = facts.namespace_labels or {}
    if labels.get(_ENFORCE) in ("baseline", "restricted"):
        named = (*named, labels.get(f"{_ENFORCE}-version", LATEST_VERSION))
    return _range(named, NEWEST if facts.kubernetes is None else facts.kubernetes)


@lru_cache(maxsize=256)
def _range(named: tuple[str, ...], latest: int) -> Versions:
    minors = [int(pin[1]) if pin else latest for pin in map(_PINNED.fullmatch, named)]
    return Versions(min(minors), max(minors))
