"""What the controls read and return, and the phrases that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from policies.kubernetes.core_v1 import Capabilities, PodSpec, SecurityContext
from policies.kubernetes.pod import Container, Pod
from policies.wording import quote

HARDENED = SecurityContext(
    allow_privilege_escalation=False, capabilities=Capabilities(drop=["ALL"])
)
"""The security context that gpufence adds to a container. It sets nothing that a control rejects,
and leaves the user and the seccomp profile to the Pod. Never changed."""


class PodView(msgspec.Struct, frozen=True):
    """A Pod, its security context (empty if it has none) and its containers in visiting order.

    ``judged`` are the containers whose security context is not exactly ``HARDENED``, and
    ``contexts`` holds the security contexts of the Pod and of these containers.

    ``windows`` is ``spec.os.name``, by which alone Pod Security recognizes a Windows Pod.
    ``user_namespace`` is ``hostUsers: false``, which makes root in the Pod a user without
    privileges on the node. ``completed`` says that gpufence adds what ``restricted`` requires and
    the Pod does not set. What it leaves out because of another field is then not reported: the
    control of that field is. The same applies to the ports that ``hostNetwork`` implies.
    """

    pod: Pod
    spec: PodSpec
    context: SecurityContext
    containers: tuple[Container, ...]
    judged: list[Container]
    contexts: list[SecurityContext]
    windows: bool
    user_namespace: bool
    completed: bool


def view(pod: Pod, *, completed: bool) -> PodView:
    """Return the view of a Pod that all controls share."""
    spec, context, containers = pod.spec, pod.security_context, pod.containers()
    judged = [container for container in containers if container.security_context != HARDENED]
    return PodView(
        pod,
        spec,
        context,
        containers,
        judged,
        [context, *[container.security_context for container in judged]],
        pod.is_windows,
        spec.host_users is False,
        completed,
    )


class Violation(NamedTuple):
    """A control that a Pod fails.

    ``reason`` is in the words of the official library. ``path`` is the first offending field, below
    the Pod. ``found`` and ``accepted`` name the values, ``remediation`` what to set instead.
    ``subjects`` has an entry for each fault, with its container and value
    (``web: SYS_ADMIN``, ``the Pod: hostIPC``): an update with a further fault is a new finding.
    """

    reason: str
    path: str
    found: str
    accepted: str
    remediation: str
    subjects: frozenset[str]


class Offenders(NamedTuple):
    """The Pod's own security context, or containers, or both, that violate a control."""

    pod: PodView | None
    containers: list[Container]

    @property
    def who(self) -> str:
        """The subject of a sentence: ``the Pod and containers "a" and "b"``."""
        return " and ".join(
            [*(["the Pod"] if self.pod else []), *([self.named] if self.containers else [])]
        )

    @property
    def named(self) -> str:
        return name_containers(self.containers)

    def verb(self, one: str, several: str) -> str:
        """Return the form of a verb that goes with ``who``."""
        return several if len(self.containers) + bool(self.pod) > 1 else one

    def contexts(self) -> Iterator[SecurityContext]:
        """Yield the offending security contexts, in visiting order."""
        if self.pod:
            yield self.pod.context
        for container in self.containers:
            yield container.security_context

    def subjects(self, values: Callable[[SecurityContext], Iterable[str]]) -> frozenset[str]:
        """Return each offender with each of the values in its security context."""
        contexts = [("the Pod", self.pod.context)] if self.pod else []
        contexts += [(container.name, container.security_context) for container in self.containers]
        return subjects((who, value) for who, context in contexts for value in values(context))

    def violation(
        self,
        reason: str,
        field: str,
        value: str | Callable[[SecurityContext], str],
        accepted: str,
        remediation: str,
    ) -> Violation:
        """Return the violation of a control that rejects values of one field.

        ``value`` is the only one that it rejects, or returns that of a security context.
        """
        if isinstance(value, str):
            values, found = [value], f": {value}"
        else:
            values = sorted({value(context) for context in self.contexts()})
            found = f" to {quote(values)}"
        return Violation(
            reason,
            self.path(field),
            f"{self.who} {self.verb('sets', 'set')} securityContext.{field}{found}",
            accepted,
            remediation,
            self.subjects(lambda context: [value if isinstance(value, str) else value(context)]),
        )

    def path(self, field: str) -> str:
        """Return the path of the first offender's ``field`` of the security context."""
        where = "spec" if self.pod else self.containers[0].field
        return f"{where}.securityContext.{field}"

    def remediation(self, text: str) -> str:
        """Return the remediation, and what to do about containers that ``kubectl debug`` added.

        Its profile clears the security context and sets what ``restricted`` requires (kubectl
        pkg/cmd/debug/profiles.go, restrictedProfile).
        """
        kinds = {container.kind for container in self.containers}
        if "ephemeralContainers" not in kinds:
            return text
        if self.pod is None and len(kinds) == 1:
            return "Start the debug container with kubectl debug --profile=restricted"
        return f"{text}. Start debug containers with kubectl debug --profile=restricted"


def offenders(pod: PodView, bad: Callable[[SecurityContext], bool]) -> Offenders | None:
    """Return the Pod and the containers whose security context is bad, if there are any."""
    if True not in map(bad, pod.contexts):
        return None
    containers = [container for container in pod.judged if bad(container.security_context)]
    return Offenders(pod if bad(pod.context) else None, containers)


def containers_with(pod: PodView, bad: Callable[[SecurityContext], bool]) -> Offenders | None:
    """Return the containers whose security context is bad, if there are any."""
    if not pod.judged:
        return None
    containers = [container for container in pod.judged if bad(container.security_context)]
    return Offenders(None, containers) if containers else None


def distinct(containers: Iterable[Container]) -> list[Container]:
    """Return the containers without repetition."""
    return list({container.field: container for container in containers}.values())


def unset(
    silent: list[Container], reason: str, field: str, accepted: str, remediation: str
) -> Violation | None:
    """Return the violation of a control that the Pod or each container must meet with a field."""
    if not silent:
        return None
    bad = Offenders(None, silent)
    return Violation(
        reason,
        bad.path(field.partition(".")[0]),
        f"neither the Pod nor {bad.named} sets securityContext.{field}",
        accepted,
        bad.remediation(remediation),
        bad.subjects(lambda _: ["unset"]),
    )


def subjects(faults: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the subjects of a violation: the offender, and its fault."""
    return frozenset(f"{who}: {what}" for who, what in faults)


def name_containers(containers: Iterable[Container]) -> str:
    """Return ``container "a"`` or ``containers "a" and "b"``."""
    names = [container.name for container in containers]
    return f"{'container' if len(names) == 1 else 'containers'} {quote(names)}"
