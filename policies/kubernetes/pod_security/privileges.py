"""Privileges of a container beyond those of an ordinary process."""

from __future__ import annotations

from collections.abc import Collection

from policies.kubernetes.core_v1 import SecurityContext
from policies.kubernetes.pod import (
    Container,
    added_capabilities,
    excluding_no_escalation,
    locks_memory,
)
from policies.kubernetes.pod_security.view import (
    Fault,
    PodView,
    Violation,
    at,
    offenders,
    unset,
    violation,
    wrong_setting,
    wrong_settings,
    wrong_settings_of_containers,
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
    faults = wrong_settings_of_containers(pod, "privileged", lambda each: _true(each.privileged))
    remediation = "Remove privileged: a container can use the GPU that it requests without it"
    return wrong_setting("privileged", faults, "only false", remediation)


def allow_privilege_escalation(pod: PodView) -> Violation | None:
    """No process of a container can gain privileges, for example with a setuid program.

    Restricted field: ``allowPrivilegeEscalation`` of the containers' security contexts. A Windows
    Pod cannot have it. Source: check_allowPrivilegeEscalation.go.
    """
    if pod.windows:
        return None
    field = "allowPrivilegeEscalation"
    faults = [
        Fault(
            container,
            at(container, field),
            "true" if container.security_context.allow_privilege_escalation else "unset",
        )
        for container in pod.judged
        if container.security_context.allow_privilege_escalation is not False
        and not (pod.completed and _excludes_no_escalation(container.security_context))
    ]
    if not faults:
        return None
    found, shown = [], f"securityContext.{field}"
    if explicit := [fault for fault in faults if fault.what == "true"]:
        found.append(f"{offenders(explicit, 'sets', 'set')} {shown}: true")
        shown = "it"
    if silent := [fault for fault in faults if fault.what == "unset"]:
        found.append(f"{offenders(silent, 'does not set', 'do not set')} {shown}")
    remediation = f"Set securityContext: {{{field}: false}} in {offenders(faults)}"
    excluding = [
        cause
        for fault in faults
        if fault.container
        for cause in excluding_no_escalation(fault.container.security_context)
    ]
    if excluding:
        remediation += f", and remove {listing(dict.fromkeys(excluding))}"
    return violation(f"{field} != false", faults, ", ".join(found), "only false", remediation)


def capabilities_baseline(pod: PodView) -> Violation | None:
    """Containers add only capabilities that runtimes grant by default.

    Restricted field: ``capabilities.add`` of the containers' security contexts. Source:
    check_capabilities_baseline.go.
    """
    added = [fault for container in pod.judged for fault in _added(container, DEFAULT_CAPABILITIES)]
    if not added:
        return None
    return violation(
        "non-default capabilities",
        added,
        _found(added),
        f"only {listing(DEFAULT_CAPABILITIES)}",
        capitalized(_remove(added)),
    )


def capabilities_restricted(pod: PodView) -> Violation | None:
    """Every container drops all capabilities and adds only ``NET_BIND_SERVICE``.

    Restricted fields: ``capabilities.drop`` and ``.add`` of the containers' security contexts. A
    Windows Pod cannot have them and passes. Source: check_capabilities_restricted.go.
    """
    if pod.windows:
        return None
    keeping: list[Fault] = []
    added: list[Fault] = []
    faults: list[Fault] = []
    for container in pod.judged:
        if not _drops_all(container.security_context):
            keeping.append(Fault(container, at(container, "capabilities.drop"), "not dropped"))
            faults.append(keeping[-1])
        of_container = _added(container, RESTRICTED_CAPABILITIES)
        added += of_container
        faults += of_container
    if not faults:
        return None
    found, remediation = [], []
    if keeping:
        who = offenders(keeping, "does not drop", "do not drop")
        found.append(f'{who} "ALL" in securityContext.capabilities.drop')
        drop = "set securityContext: {capabilities: {drop: [ALL]}} in"
        remediation.append(f"{drop} {offenders(keeping)}")
    if added:
        found.append(_found(added))
        remediation.append(_remove(added))
    return violation(
        "unrestricted capabilities",
        faults,
        ", ".join(found),
        'drop: ["ALL"], and only "NET_BIND_SERVICE" in add',
        capitalized(listing(remediation)),
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
    faults = wrong_settings_of_containers(
        pod,
        "procMount",
        lambda each: None if each.proc_mount in (None, "Default") else each.proc_mount,
    )
    return wrong_setting("procMount", faults, 'only "Default"', "Remove procMount", quoted=True)


def windows_host_process(pod: PodView) -> Violation | None:
    """No container runs as a process of the Windows host.

    Restricted field: ``windowsOptions.hostProcess`` of the Pod's and the containers' security
    contexts. Source: check_windowsHostProcess.go.
    """
    faults = wrong_settings(
        pod,
        "windowsOptions.hostProcess",
        lambda each: _true(each.windows_options and each.windows_options.host_process),
    )
    return wrong_setting("hostProcess", faults, "only false", "Remove hostProcess")


def _drops_all(context: SecurityContext) -> bool:
    capabilities = context.capabilities
    return capabilities is not None and "ALL" in (capabilities.drop or ())


def _true(value: object) -> str | None:
    return "true" if value else None


def _added(container: Container, accepted: Collection[str]) -> list[Fault]:
    """Return the capabilities that a container adds and may not add."""
    return [
        Fault(container, at(container, f"capabilities.add[{position}]"), name)
        for position, name in enumerate(added_capabilities(container.security_context))
        if name not in accepted
    ]


def _found(added: list[Fault]) -> str:
    names = quote(sorted({fault.what for fault in added}))
    return f"{offenders(added, 'adds', 'add')} {names} in securityContext.capabilities.add"


def _remove(added: list[Fault]) -> str:
    names = sorted({fault.what for fault in added})
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
    explicit = wrong_settings(
        pod, field, lambda each: "false" if each.run_as_non_root is False else None
    )
    if explicit:
        return wrong_setting(reason, explicit, accepted, f"Set {_non_root(pod)} instead")
    if pod.context.run_as_non_root:
        return None
    silent = [
        container
        for container in pod.containers
        if container.security_context.run_as_non_root is None
        and not (pod.completed and _keeps_user(container.security_context, pod))
    ]
    return unset(silent, reason, field, accepted, f"Set {_non_root(pod)} in the Pod's spec")


def _non_root(pod: PodView) -> str:
    """Return the settings of a Pod that does not run as root; on Windows, users have no IDs."""
    user = "" if pod.windows else ", runAsUser: 65532"
    return f"securityContext: {{runAsNonRoot: true{user}}}"


def run_as_user(pod: PodView) -> Violation | None:
    """Neither the Pod nor a container sets root as its user.

    Restricted fields: ``runAsUser`` of the Pod's and the containers' security contexts, any
    value is accepted with ``hostUsers: false``. The Pod's 0 counts even if every container sets
    another user.
    Source: check_runAsUser.go.
    """
    if pod.user_namespace:
        return None
    root = wrong_settings(pod, "runAsUser", lambda each: "0" if each.run_as_user == 0 else None)
    return wrong_setting(
        "runAsUser=0",
        root,
        "any user ID except 0",
        "Set runAsUser: 65532. Install packages in the image build, and set fsGroup if the "
        "container writes to volumes",
    )


def _excludes_no_escalation(context: SecurityContext) -> bool:
    """Return whether the container must lose a privilege before gpufence sets the field."""
    return context.allow_privilege_escalation is None and bool(excluding_no_escalation(context))


def _keeps_user(context: SecurityContext, pod: PodView) -> bool:
    """Return whether a user of 0 or IPC_LOCK, which another control rejects, keeps the user."""
    user = pod.context.run_as_user if context.run_as_user is None else context.run_as_user
    return user == 0 or (user is None and not pod.windows and locks_memory(context))
