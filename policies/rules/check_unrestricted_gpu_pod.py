"""GPU Pod that violates the Pod Security profile `restricted`."""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import Pod
from policies.kubernetes.pod_security import violations
from policies.rules import set_restricted_security_context

ID = "unrestricted-gpu-pod"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each control of the profile that the Pod fails."""
    level = context.hardening.level
    if level == "off":
        return
    actions = context.policy.actions_in(context.request.namespace).written
    completed = actions.get(set_restricted_security_context.ID) == "enforce"
    for violation in violations(pod, level, completed=completed):
        yield Finding(
            ID,
            pod.at(violation.path),
            violation.reason,
            f'{violation.found}; Pod Security "{level}" accepts {violation.accepted}',
            violation.remediation,
            subjects=violation.subjects,
        )
