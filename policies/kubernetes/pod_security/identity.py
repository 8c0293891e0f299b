"""Who the processes of a Pod run as."""

from __future__ import annotations

from policies.kubernetes.core_v1 import SecurityContext
from policies.kubernetes.pod_security.view import PodView
from policies.kubernetes.pod_security.violation import Offenders, Violation, offenders

_NON_ROOT = "securityContext: {runAsNonRoot: true, runAsUser: 65532}"


def run_as_non_root(pod: PodView) -> Violation | None:
    """Every container says that it does not run as root, or the Pod says it for them.

    Restricted fields: ``runAsNonRoot`` of the Pod's and the containers' security contexts, anything
    goes with ``hostUsers: false``. A Windows Pod is no exception. Source: check_runAsNonRoot.go.
    """
    if pod.user_namespace:
        return None
    allowed = offenders(pod, _may_be_root)
    if allowed:
        return Violation(
            "runAsNonRoot != true",
            allowed.path("runAsNonRoot"),
            f"{allowed.who} {allowed.verb('sets', 'set')} securityContext.runAsNonRoot: false",
            "only true",
            allowed.remediation(f"Write {_NON_ROOT} instead"),
            allowed.subjects(lambda _: ["false"]),
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
    return Violation(
        "runAsNonRoot != true",
        unset.path("runAsNonRoot"),
        f"neither the Pod nor {unset.named} sets securityContext.runAsNonRoot",
        "only true",
        unset.remediation(f"Write {_NON_ROOT} in the Pod's spec"),
        unset.subjects(lambda _: ["unset"]),
    )


def run_as_user(pod: PodView) -> Violation | None:
    """No container, and not the Pod, names root as its user.

    Restricted fields: ``runAsUser`` of the Pod's and the containers' security contexts, anything
    goes with ``hostUsers: false``. The Pod's 0 counts even where every container has another user.
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
        "every user ID but 0",
        root.remediation(
            "Write runAsUser: 65532, install packages when the image is built, and set the Pod's "
            "fsGroup where volumes must be writable"
        ),
        root.subjects(lambda _: ["0"]),
    )


def _may_be_root(context: SecurityContext) -> bool:
    return context.run_as_non_root is False


def _is_root(context: SecurityContext) -> bool:
    return context.run_as_user == 0
