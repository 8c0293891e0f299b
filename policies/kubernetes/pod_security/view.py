"""What the controls read and return, and the phrases that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from policies.kubernetes.core_v1 import Capabilities, PodSpec, SeccompProfile, SecurityContext
from policies.kubernetes.pod import Container, Pod
from policies.kubernetes.profile_versions import LATEST, Versions
from policies.wording import quote

HARDENED = SecurityContext(
    allow_privilege_escalation=False, capabilities=Capabilities(drop=["ALL"])
)
"""The security context that gpufence adds to a container. It sets nothing that a control rejects,
and leaves the user and the seccomp profile to the Pod. Never changed."""

_RUNTIME_DEFAULT = SeccompProfile("RuntimeDefault")


class PodView(msgspec.Struct, frozen=True):
    """A Pod, its security context (empty if it has none) and its containers in visiting order.

    ``judged`` are the containers whose security context is not exactly ``HARDENED``. ``contexts``
    holds the security context of the Pod, followed by those of these containers. ``owners`` holds
    None for the Pod, followed by these containers.

    ``windows`` is ``spec.os.name``, by which alone Pod Security recognizes a Windows Pod.
    ``user_namespace`` is ``hostUsers: false``, which makes root in the Pod a user without
    privileges on the node: since 1.35, the profiles consider it. ``completed`` says that gpufence
    adds what ``restricted`` requires and the Pod does not set. What it leaves out because of
    another field is then not reported: the control of that field is. The same applies to the ports
    that ``hostNetwork`` implies.
    """

    versions: Versions

    pod: Pod
    spec: PodSpec
    context: SecurityContext
    containers: tuple[Container, ...]
    judged: list[Container]
    owners: list[Container | None]
    contexts: list[SecurityContext]
    windows: bool
    user_namespace: bool
    completed: bool


def view(pod: Pod, versions: Versions = LATEST, *, completed: bool) -> PodView:
    """Return the view of a Pod that all controls share."""
    spec, context, containers = pod.spec, pod.security_context, pod.containers
    judged = [container for container in containers if container.security_context != HARDENED]
    return PodView(
        versions,
        pod,
        spec,
        context,
        containers,
        judged,
        [None, *judged],
        [context, *[container.security_context for container in judged]],
        pod.is_windows,
        spec.host_users is False and versions.oldest >= 35,
        completed,
    )


def is_hardened(pod: PodView) -> bool:
    """Return whether the security contexts are those that gpufence sets, with any non-root user."""
    own = pod.context
    return (
        not pod.judged
        and own.run_as_user != 0
        and own
        == SecurityContext(
            run_as_non_root=True,
            run_as_user=own.run_as_user,
            run_as_group=own.run_as_group,
            fs_group=own.fs_group,
            fs_group_change_policy=own.fs_group_change_policy,
            seccomp_profile=_RUNTIME_DEFAULT,
        )
    )


class Fault(NamedTuple):
    """A value that a control rejects, its path, and its container (None: the Pod itself).

    ``host_path`` is the path of a hostPath volume, without detours.
    """

    container: Container | None
    path: str
    what: str
    host_path: str = ""

    @property
    def subject(self) -> str:
        """The fault with its offender: ``web: SYS_ADMIN``, ``the Pod: hostIPC``."""
        return f"{self.container.name if self.container else 'the Pod'}: {self.what}"


class Violation(NamedTuple):
    """A control that a Pod fails.

    ``reason`` is in the words of the official library. ``path`` is the first offending field, below
    the Pod. ``found`` and ``accepted`` name the values, ``remediation`` what to set instead.
    ``subjects`` has an entry for each fault: an update with a further fault is a new finding.
    """

    reason: str
    path: str
    found: str
    accepted: str
    remediation: str
    subjects: frozenset[str]
    faults: tuple[Fault, ...] = ()
    control: str = ""
    """The ID of the control in the official library, without the level."""

    @property
    def rejected(self) -> frozenset[tuple[str, str]]:
        """The controls that reject a value, and the value: a path of the node, a capability, ..."""
        return frozenset(
            ("hostPathVolumes", fault.host_path) if fault.host_path else (self.control, fault.what)
            for fault in self.faults
        )


def violation(
    reason: str, faults: list[Fault], found: str, accepted: str, remediation: str
) -> Violation:
    """Return the violation of a control, with what to do about debug containers.

    The profile of ``kubectl debug`` clears the security context and sets what ``restricted``
    requires (kubectl pkg/cmd/debug/profiles.go, restrictedProfile).
    """
    kinds = {fault.container.kind if fault.container else "" for fault in faults}
    if kinds == {"ephemeralContainers"}:
        remediation = "Start the debug container with kubectl debug --profile=restricted"
    elif "ephemeralContainers" in kinds:
        remediation += ". Start debug containers with kubectl debug --profile=restricted"
    subjects = frozenset(fault.subject for fault in faults)
    return Violation(reason, faults[0].path, found, accepted, remediation, subjects, tuple(faults))


def at(owner: Container | None, field: str) -> str:
    """Return the path of a field in the security context of a container, or of the Pod."""
    return f"{owner.field if owner else 'spec'}.securityContext.{field}"


def wrong_settings(
    pod: PodView, field: str, rejected: Callable[[SecurityContext], str | None]
) -> list[Fault]:
    """Return a fault for each security context whose field has a value that is rejected."""
    values = list(map(rejected, pod.contexts))
    # For speed: most Pods have no fault.
    if values.count(None) == len(values):
        return []
    return [
        Fault(owner, at(owner, field), value)
        for owner, value in zip(pod.owners, values, strict=True)
        if value is not None
    ]


def wrong_settings_of_containers(
    pod: PodView, field: str, rejected: Callable[[SecurityContext], str | None]
) -> list[Fault]:
    """Return the faults in a field that only the security contexts of containers have."""
    if not pod.judged:
        return []
    return [fault for fault in wrong_settings(pod, field, rejected) if fault.container]


def wrong_setting(
    reason: str, faults: list[Fault], accepted: str, remediation: str, *, quoted: bool = False
) -> Violation | None:
    """Return the violation of a control that rejects values of one field, if there are any.

    Names are ``quoted``. Of a field that holds no names, only one value is rejected.
    """
    if not faults:
        return None
    field = faults[0].path.rpartition("securityContext.")[2]
    values = sorted({fault.what for fault in faults})
    shown = f" to {quote(values)}" if quoted else f": {values[0]}"
    found = f"{offenders(faults, 'sets', 'set')} securityContext.{field}{shown}"
    return violation(reason, faults, found, accepted, remediation)


def unset(
    containers: list[Container], reason: str, field: str, accepted: str, remediation: str
) -> Violation | None:
    """Return the violation of a control that the Pod or each container must meet with a field."""
    if not containers:
        return None
    holder = field.partition(".")[0]
    faults = [Fault(container, at(container, holder), "unset") for container in containers]
    found = f"neither the Pod nor {offenders(faults)} sets securityContext.{field}"
    return violation(reason, faults, found, accepted, remediation)


def offenders(faults: Iterable[Fault], one: str = "", several: str = "") -> str:
    """Return the subject of a sentence, and the form of the verb that goes with it.

    For example ``the Pod and containers "a" and "b" set``.
    """
    containers = {each.container.field: each.container for each in faults if each.container}
    who = ["the Pod"] if any(fault.container is None for fault in faults) else []
    count = len(who) + len(containers)
    if containers:
        names = quote([container.name for container in containers.values()])
        who.append(f"{'container' if len(containers) == 1 else 'containers'} {names}")
    return " and ".join(who) + (f" {one if count == 1 else several}" if one else "")
