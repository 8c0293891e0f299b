"""Privileges of a container beyond those of an ordinary process."""

from __future__ import annotations

from collections.abc import Collection, Iterator

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
    listing,
    name_containers,
    offenders,
    quote,
    sentence,
    subjects,
)

_DEFAULT_CAPABILITIES = (
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
_RESTRICTED_CAPABILITIES = ("NET_BIND_SERVICE",)
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
    containers = [container for container in pod.judged if container.security_context.privileged]
    if not containers:
        return None
    bad = Offenders(None, containers)
    return Violation(
        "privileged",
        bad.path("privileged"),
        f"{bad.named} {bad.verb('sets', 'set')} securityContext.privileged: true",
        "only false",
        bad.remediation(
            "Remove privileged: a container can use the GPU that it requests without it"
        ),
        bad.subjects(lambda _: ["true"]),
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
        found.append(f"{name_containers(explicit)} {_s('set', explicit)} {field}: true")
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
    adding = _adding(pod, _DEFAULT_CAPABILITIES)
    if not adding:
        return None
    return Violation(
        "non-default capabilities",
        _first_added(adding[0], _DEFAULT_CAPABILITIES),
        _found_adding(adding, _DEFAULT_CAPABILITIES),
        f"only {listing(_DEFAULT_CAPABILITIES)}",
        Offenders(None, adding).remediation(sentence(_remove(adding, _DEFAULT_CAPABILITIES))),
        subjects(_rejected_by(adding, _DEFAULT_CAPABILITIES)),
    )


def capabilities_restricted(pod: PodView) -> Violation | None:
    """Every container drops all capabilities and adds only ``NET_BIND_SERVICE``.

    Restricted fields: ``capabilities.drop`` and ``.add`` of the containers' security contexts. A
    Windows Pod cannot have them and passes. Source: check_capabilities_restricted.go.
    """
    if pod.windows:
        return None
    bad = [
        container
        for container in pod.judged
        if not _drops_all(container.security_context) or _adds(container, _RESTRICTED_CAPABILITIES)
    ]
    if not bad:
        return None
    keeping = [container for container in bad if not _drops_all(container.security_context)]
    adding = [container for container in bad if _adds(container, _RESTRICTED_CAPABILITIES)]
    found, remediation = [], []
    if keeping:
        lacks = "does not drop" if len(keeping) == 1 else "do not drop"
        found.append(
            f'{name_containers(keeping)} {lacks} "ALL" in securityContext.capabilities.drop'
        )
        remediation.append(
            f"set securityContext: {{capabilities: {{drop: [ALL]}}}} in {name_containers(keeping)}"
        )
    if adding:
        found.append(_found_adding(adding, _RESTRICTED_CAPABILITIES))
        remediation.append(_remove(adding, _RESTRICTED_CAPABILITIES))
    path = (
        f"{bad[0].field}.securityContext.capabilities.drop"
        if not _drops_all(bad[0].security_context)
        else _first_added(bad[0], _RESTRICTED_CAPABILITIES)
    )
    return Violation(
        "unrestricted capabilities",
        path,
        ", ".join(found),
        'drop: ["ALL"], and only "NET_BIND_SERVICE" in add',
        Offenders(None, bad).remediation(sentence(listing(remediation))),
        subjects(
            [
                *((container.name, "not dropped") for container in keeping),
                *_rejected_by(adding, _RESTRICTED_CAPABILITIES),
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
    containers = [
        container
        for container in pod.judged
        if container.security_context.proc_mount not in (None, "Default")
    ]
    if not containers:
        return None
    bad = Offenders(None, containers)
    values = sorted({_proc_mount(context) for context in bad.contexts()})
    return Violation(
        "procMount",
        bad.path("procMount"),
        f"{bad.named} {bad.verb('sets', 'set')} securityContext.procMount to {quote(values)}",
        'only "Default"',
        "Remove procMount",
        bad.subjects(lambda context: [_proc_mount(context)]),
    )


def windows_host_process(pod: PodView) -> Violation | None:
    """No container runs as a process of the Windows host.

    Restricted field: ``windowsOptions.hostProcess`` of the Pod's and the containers' security
    contexts. Source: check_windowsHostProcess.go.
    """
    bad = offenders(pod, _host_process)
    if bad is None:
        return None
    return Violation(
        "hostProcess",
        bad.path("windowsOptions.hostProcess"),
        f"{bad.who} {bad.verb('sets', 'set')} securityContext.windowsOptions.hostProcess: true",
        "only false",
        "Remove hostProcess",
        bad.subjects(lambda _: ["true"]),
    )


def _host_process(context: SecurityContext) -> bool:
    return bool(context.windows_options and context.windows_options.host_process)


def _proc_mount(context: SecurityContext) -> str:
    return context.proc_mount or ""


def _drops_all(context: SecurityContext) -> bool:
    capabilities = context.capabilities
    return capabilities is not None and "ALL" in (capabilities.drop or ())


def _adding(pod: PodView, accepted: Collection[str]) -> list[Container]:
    return [container for container in pod.judged if _adds(container, accepted)]


def _adds(container: Container, accepted: Collection[str]) -> bool:
    added = added_capabilities(container.security_context)
    return bool(added) and any(name not in accepted for name in added)


def _rejected_by(adding: list[Container], accepted: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield container and name of each added capability that is not accepted."""
    for container in adding:
        for name in added_capabilities(container.security_context):
            if name not in accepted:
                yield container.name, name


def _rejected(adding: list[Container], accepted: Collection[str]) -> list[str]:
    return sorted({name for _, name in _rejected_by(adding, accepted)})


def _first_added(container: Container, accepted: Collection[str]) -> str:
    index = next(
        index
        for index, name in enumerate(added_capabilities(container.security_context))
        if name not in accepted
    )
    return f"{container.field}.securityContext.capabilities.add[{index}]"


def _found_adding(adding: list[Container], accepted: Collection[str]) -> str:
    return (
        f"{name_containers(adding)} {_s('add', adding)} {quote(_rejected(adding, accepted))} in "
        "securityContext.capabilities.add"
    )


def _remove(adding: list[Container], accepted: Collection[str]) -> str:
    names = _rejected(adding, accepted)
    text = f"remove {quote(names)} from capabilities.add"
    notes = [note for name, note in _WITHOUT.items() if name in names]
    if notes:
        exception = "otherwise, request an exception from the cluster administrator"
        text += f". {sentence('; '.join([*notes, exception]))}"
    return text


def _s(verb: str, containers: list[Container]) -> str:
    return f"{verb}s" if len(containers) == 1 else verb


_NON_ROOT = "securityContext: {runAsNonRoot: true, runAsUser: 65532}"


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
        and not (pod.completed and _keeps_user(container.security_context, pod))
    ]
    if not silent:
        return None
    unset = Offenders(None, silent)
    return Violation(
        "runAsNonRoot != true",
        unset.path("runAsNonRoot"),
        f"neither the Pod nor {unset.named} sets securityContext.runAsNonRoot",
        "only true",
        unset.remediation(f"Set {_NON_ROOT} in the Pod's spec"),
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


def _excludes_no_escalation(context: SecurityContext) -> bool:
    """Return whether the container must lose a privilege before gpufence sets the field."""
    return context.allow_privilege_escalation is None and bool(excluding_no_escalation(context))


def _keeps_user(context: SecurityContext, pod: PodView) -> bool:
    """Return whether a user of 0 or IPC_LOCK, which another control rejects, keeps the user."""
    user = pod.context.run_as_user if context.run_as_user is None else context.run_as_user
    return user == 0 or (user is None and not pod.windows and locks_memory(context))
