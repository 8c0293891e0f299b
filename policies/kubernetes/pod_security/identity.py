"""The user of the processes in a Pod."""

from __future__ import annotations

from policies.kubernetes.core_v1 import SecurityContext
from policies.kubernetes.pod_security.privileges import locks_memory
from policies.kubernetes.pod_security.view import PodView
from policies.kubernetes.pod_security.violation import Offenders, Violation, offenders

_NON_ROOT = "securityContext: {runAsNonRoot: true, runAsUser: 65532}"
_WITHOUT_IPC_LOCK = (
    "Remove IPC_LOCK: gpufence then sets a user. With IPC_LOCK, it keeps the user of the image, "
    "which may be root, because the capability has no effect for other users"
)


def run_as_non_root(pod: PodView) -> Violation | None:
    """Every container sets ``runAsNonRoot: true``, or the Pod does.

    Restricted fields: ``runAsNonRoot`` of the Pod's and the containers' security contexts, any
    value is accepted with ``hostUsers: false``. Windows Pods are checked as well. Source:
    check_runAsNonRoot.go.
    """
    if pod.user_namespace:
        return None
    explicit = offenders(pod, _may_be_root)
    if explicit:
        return Violation(
            "runAsNonRoot != true",
            explicit.path("runAsNonRoot"),
            f"{explicit.who} {explicit.verb('sets', 'set')} securityContext.runAsNonRoot: false",
            "only true",
            explicit.remediation(f"Set {_NON_ROOT} instead"),
            explicit.subjects(lambda _: ["false"]),
        )
    if pod.context.run_as_non_root:
        return None
    silent = [
        container
        for container in pod.containers
        if container.security_context.run_as_non_root is None
    ]
    if not silent:
        return None
    unset = Offenders(None, silent)
    keep_user = all(locks_memory(container.security_context) for container in silent)
    return Violation(
        "runAsNonRoot != true",
        unset.path("runAsNonRoot"),
        f"neither the Pod nor {unset.named} sets securityContext.runAsNonRoot",
        "only true",
        unset.remediation(_WITHOUT_IPC_LOCK if keep_user else f"Set {_NON_ROOT} in the Pod's spec"),
        unset.subjects(lambda _: ["unset"]),
    )


def run_as_user(pod: PodView) -> Violation | None:
    """Neither the Pod nor a container sets root as its user.

    Restricted fields: ``runAsUser`` of the Pod's and the containers' security contexts, any
    value is accepted with ``hostUsers: false``. The Pod's 0 counts even if every container sets
    another user.
    Source: check_runAsUser.go.
    """
    if pod.user_namespace:
        return None
    root = offenders(pod, _is_root)
    if root is None:
        return None
    return Violation(
        "runAsUser=0",
        root.path("runAsUser"),
        f"{root.who} {root.verb('sets', 'set')} securityContext.runAsUser: 0",
        "any user ID except 0",
        root.remediation(
            "Set runAsUser: 65532. Install packages in the image build, and set fsGroup if the "
            "container writes to volumes"
        ),
        root.subjects(lambda _: ["0"]),
    )


def _may_be_root(context: SecurityContext) -> bool:
    return context.run_as_non_root is False


def _is_root(context: SecurityContext) -> bool:
    return context.run_as_user == 0
