"""Privileges of a container beyond those of an ordinary process."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from policies.kubernetes.core_v1 import SecurityContext
from policies.kubernetes.pod import (
    Container,
    added_capabilities,
    excluding_no_escalation,
    locks_memory,
)
from policies.kubernetes.pod_security.view import (
    Offenders,
    PodView,
    Violation,
    containers_with,
    distinct,
    name_containers,
    offenders,
    subjects,
    unset,
)
from policies.wording import capitalized, listing, quote

DEFAULT_CAPABILITIES = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
)
RESTRICTED_CAPABILITIES = ("NET_BIND_SERVICE",)
_NON_ROOT = "securityContext: {runAsNonRoot: true, runAsUser: 65532}"
_WITHOUT = {
    "IPC_LOCK": "RDMA with the RDMA device plugin works without IPC_LOCK, unless the container "
    "runtime sets a memlock limit",
    "NET_ADMIN": "a service mesh with a CNI plugin works without NET_ADMIN",
}


def privileged(pod: PodView) -> Violation | None:
    """No container is privileged.

    Restricted field: ``privileged`` of the containers' security contexts. Source:
    check_privileged.go.
    """
    bad = containers_with(pod, lambda context: bool(context.privileged))
    if bad is None:
        return None
    remediation = "Remove privileged: a container can use the GPU that it requests without it"
    return bad.violation(
        "privileged", "privileged", "true", "only false", bad.remediation(remediation)
    )


def allow_privilege_escalation(pod: PodView) -> Violation | None:
    """No process of a container can gain privileges, for example with a setuid program.

    Restricted field: ``allowPrivilegeEscalation`` of the containers' security contexts. A Windows
    Pod cannot have it. Source: check_allowPrivilegeEscalation.go.
    """
    if pod.windows:
        return None
    containers = [
        container
        for container in pod.judged
        if container.security_context.allow_privilege_escalation is not False
        and not (pod.completed and _excludes_no_escalation(container.security_context))
    ]
    if not containers:
        return None
    bad = Offenders(None, containers)
    field = "securityContext.allowPrivilegeEscalation"
    explicit = [
        container
        for container in containers
        if container.security_context.allow_privilege_escalation
    ]
    silent = [container for container in containers if container not in explicit]
    found = []
    if explicit:
        found.append(
            f"{name_containers(explicit)} {'sets' if len(explicit) == 1 else 'set'} {field}: true"
        )
    if silent:
        lacks = "does not set" if len(silent) == 1 else "do not set"
        found.append(f"{name_containers(silent)} {lacks} {'it' if explicit else field}")
    remediation = f"Set securityContext: {{allowPrivilegeEscalation: false}} in {bad.named}"
    excluding = [excluding_no_escalation(context) for context in bad.contexts()]
    if causes := list(dict.fromkeys(cause for causes in excluding for cause in causes)):
        remediation += f", and remove {listing(causes)}"
    return Violation(
        "allowPrivilegeEscalation != false",
        bad.path("allowPrivilegeEscalation"),
        ", ".join(found),
        "only false",
        bad.remediation(remediation),
        bad.subjects(lambda context: ["true" if context.allow_privilege_escalation else "unset"]),
    )


def capabilities_baseline(pod: PodView) -> Violation | None:
    """Containers add only capabilities that runtimes grant by default.

    Restricted field: ``capabilities.add`` of the containers' security contexts. Source:
    check_capabilities_baseline.go.
    """
    added = _added(pod, DEFAULT_CAPABILITIES)
    if not added:
        return None
    return Violation(
        "non-default capabilities",
        added[0].path,
        _found(added),
        f"only {listing(DEFAULT_CAPABILITIES)}",
        _offenders(added).remediation(capitalized(_remove(added))),
        subjects((each.container.name, each.name) for each in added),
    )


def capabilities_restricted(pod: PodView) -> Violation | None:
    """Every container drops all capabilities and adds only ``NET_BIND_SERVICE``.

    Restricted fields: ``capabilities.drop`` and ``.add`` of the containers' security contexts. A
    Windows Pod cannot have them and passes. Source: check_capabilities_restricted.go.
    """
    if pod.windows:
        return None
    keeping = [each for each in pod.judged if not _drops_all(each.security_context)]
    added = _added(pod, RESTRICTED_CAPABILITIES)
    if not (keeping or added):
        return None
    offending = (*keeping, *_offenders(added).containers)
    bad = [container for container in pod.judged if container in offending]
    found, remediation = [], []
    if keeping:
        lacks = "does not drop" if len(keeping) == 1 else "do not drop"
        found.append(
            f'{name_containers(keeping)} {lacks} "ALL" in securityContext.capabilities.drop'
        )
        remediation.append(
            f"set securityContext: {{capabilities: {{drop: [ALL]}}}} in {name_containers(keeping)}"
        )
    if added:
        found.append(_found(added))
        remediation.append(_remove(added))
    drop = f"{bad[0].field}.securityContext.capabilities.drop"
    return Violation(
        "unrestricted capabilities",
        drop if bad[0] in keeping else added[0].path,
        ", ".join(found),
        'drop: ["ALL"], and only "NET_BIND_SERVICE" in add',
        Offenders(None, bad).remediation(capitalized(listing(remediation))),
        subjects(
            [
                *((container.name, "not dropped") for container in keeping),
                *((each.container.name, each.name) for each in added),
            ]
        ),
    )


def proc_mount_baseline(pod: PodView) -> Violation | None:
    """The runtime masks /proc, or the Pod has a user namespace.

    Restricted field: ``procMount`` of the containers' security contexts, any value is accepted with
    ``hostUsers: false``. Source: check_procMount_baseline.go.
    """
    return None if pod.user_namespace else proc_mount_restricted(pod)


def proc_mount_restricted(pod: PodView) -> Violation | None:
    """The runtime masks /proc.

    Restricted field: ``procMount`` of the containers' security contexts. Source:
    check_procMount_restricted.go.
    """
    bad = containers_with(pod, lambda context: context.proc_mount not in (None, "Default"))
    if bad is None:
        return None
    return bad.violation(
        "procMount",
        "procMount",
        lambda context: context.proc_mount or "",
        'only "Default"',
        "Remove procMount",
    )


def windows_host_process(pod: PodView) -> Violation | None:
    """No container runs as a process of the Windows host.

    Restricted field: ``windowsOptions.hostProcess`` of the Pod's and the containers' security
    contexts. Source: check_windowsHostProcess.go.
    """
    bad = offenders(
        pod, lambda each: bool(each.windows_options and each.windows_options.host_process)
    )
    if bad is None:
        return None
    field = "windowsOptions.hostProcess"
    return bad.violation("hostProcess", field, "true", "only false", "Remove hostProcess")


def _drops_all(context: SecurityContext) -> bool:
    capabilities = context.capabilities
    return capabilities is not None and "ALL" in (capabilities.drop or ())


class _Added(NamedTuple):
    """A capability that a container adds and may not add."""

    container: Container
    position: int
    name: str

    @property
    def path(self) -> str:
        return f"{self.container.field}.securityContext.capabilities.add[{self.position}]"


def _added(pod: PodView, accepted: Collection[str]) -> list[_Added]:
    return [
        _Added(container, position, name)
        for container in pod.judged
        for position, name in enumerate(added_capabilities(container.security_context))
        if name not in accepted
    ]


def _offenders(added: list[_Added]) -> Offenders:
    return Offenders(None, distinct(each.container for each in added))


def _found(added: list[_Added]) -> str:
    bad, names = _offenders(added), sorted({each.name for each in added})
    return (
        f"{bad.named} {bad.verb('adds', 'add')} {quote(names)} in securityContext.capabilities.add"
    )


def _remove(added: list[_Added]) -> str:
    names = sorted({each.name for each in added})
    text = f"remove {quote(names)} from capabilities.add"
    notes = [note for name, note in _WITHOUT.items() if name in names]
    if notes:
        exception = "otherwise, request an exception from the cluster administrator"
        text += f". {capitalized('; '.join([*notes, exception]))}"
    return text


def run_as_non_root(pod: PodView) -> Violation | None:
    """Every container sets ``runAsNonRoot: true``, or the Pod does.

    Restricted fields: ``runAsNonRoot`` of the Pod's and the containers' security contexts, any
    value is accepted with ``hostUsers: false``. Windows Pods are checked as well. Source:
    check_runAsNonRoot.go.
    """
    if pod.user_namespace:
        return None
    reason, field, accepted = "runAsNonRoot != true", "runAsNonRoot", "only true"
    explicit = offenders(pod, lambda context: context.run_as_non_root is False)
    if explicit:
        remediation = explicit.remediation(f"Set {_NON_ROOT} instead")
        return explicit.violation(reason, field, "false", accepted, remediation)
    if pod.context.run_as_non_root:
        return None
    silent = [
        container
        for container in pod.containers
        if container.security_context.run_as_non_root is None
        and not (pod.completed and _keeps_user(container.security_context, pod))
    ]
    return unset(silent, reason, field, accepted, f"Set {_NON_ROOT} in the Pod's spec")


def run_as_user(pod: PodView) -> Violation | None:
    """Neither the Pod nor a container sets root as its user.

    Restricted fields: ``runAsUser`` of the Pod's and the containers' security contexts, any
    value is accepted with ``hostUsers: false``. The Pod's 0 counts even if every container sets
    another user.
    Source: check_runAsUser.go.
    """
    if pod.user_namespace:
        return None
    root = offenders(pod, lambda context: context.run_as_user == 0)
    if root is None:
        return None
    remediation = root.remediation(
        "Set runAsUser: 65532. Install packages in the image build, and set fsGroup if the "
        "container writes to volumes"
    )
    return root.violation("runAsUser=0", "runAsUser", "0", "any user ID except 0", remediation)


def _excludes_no_escalation(context: SecurityContext) -> bool:
    """Return whether the container must lose a privilege before gpufence sets the field."""
    return context.allow_privilege_escalation is None and bool(excluding_no_escalation(context))


def _keeps_user(context: SecurityContext, pod: PodView) -> bool:
    """Return whether a user of 0 or IPC_LOCK, which another control rejects, keeps the user."""
    user = pod.context.run_as_user if context.run_as_user is None else context.run_as_user
    return user == 0 or (user is None and not pod.windows and locks_memory(context))
