"""Pod Security in CEL: the GPU Pods that a profile rejects whatever the mutations add."""

from __future__ import annotations

from collections.abc import Iterator

from policies.kubernetes.pod_security import Level
from policies.kubernetes.pod_security.confinement import ACCEPTED_SE_LINUX_TYPES, PROFILES, SYSCTLS
from policies.kubernetes.pod_security.host import VOLUMES
from policies.kubernetes.pod_security.privileges import (
    DEFAULT_CAPABILITIES,
    RESTRICTED_CAPABILITIES,
)
from webhook.cel.pods import some, some_container
from webhook.cel.text import all_of, any_of, call, names, negated


def may_violate(level: Level) -> Iterator[str]:
    """Yield CEL; where all of it is false, the profile accepts the completed ``pod``.

    It also holds for some Pods that the profile accepts: with AppArmor's annotations, a user
    namespace, or Windows.
    """
    yield any_of(
        *(f"pod.spec.?{field}.orValue(false)" for field in ("hostNetwork", "hostPID", "hostIPC")),
        "!pod.spec.?hostUsers.orValue(true)",
        'pod.spec.?os.?name.orValue("linux") != "linux"',
    )
    of_both = [*_of_context(level)]
    of_pod, of_container = any_of(*of_both), any_of(*of_both, *_of_container(level))
    yield any_of(
        all_of("has(pod.spec.securityContext)", _of("pod.spec.securityContext", of_pod)),
        some_container(
            all_of("has(c.securityContext)", _of("c.securityContext", of_container)), debug="true"
        ),
    )
    yield some("pod.spec", "securityContext.sysctls", "s", f"!(s.name in {names(SYSCTLS)})")
    annotation = 'k.startsWith("container.apparmor.security.beta.kubernetes.io/")'
    yield some("pod", "metadata.annotations", "k", annotation)
    yield some_container(
        any_of(
            some("c", "ports", "p", "p.?hostPort.orValue(0) != 0"),
            *(_names_host(f"c.?{probe}") for probe in _PROBES),
        )
    )
    source = "has(v.hostPath)"
    if level == "restricted":
        source = negated(any_of(*(f"has(v.{source})" for source in VOLUMES)))
    yield some("pod.spec", "volumes", "v", source)


_PROBES = (
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle.?postStart",
    "lifecycle.?preStop",
)


def _names_host(handler: str) -> str:
    return any_of(
        *(f'{handler}.?{kind}.?host.orValue("") != ""' for kind in ("httpGet", "tcpSocket"))
    )


def _of(context: str, condition: str) -> str:
    return call(f"[dyn({context})]", "exists", "s", condition)


def _of_context(level: Level) -> Iterator[str]:
    """Yield CEL that holds for a security context ``s`` that sets what the profile rejects."""
    yield "s.?windowsOptions.?hostProcess.orValue(false)"
    for field in ("seccompProfile", "appArmorProfile"):
        yield f"has(s.{field}) && !(s.{field}.type in {names(PROFILES)})"
    yield 's.?seLinuxOptions.?user.orValue("") + s.?seLinuxOptions.?role.orValue("") != ""'
    yield f'!(s.?seLinuxOptions.?type.orValue("") in {names(ACCEPTED_SE_LINUX_TYPES)})'
    if level == "restricted":
        yield "!s.?runAsNonRoot.orValue(true)"
        yield "s.?runAsUser.orValue(1) == 0"


def _of_container(level: Level) -> Iterator[str]:
    """Yield the same for the fields that only a container's security context has."""
    yield "s.?privileged.orValue(false)"
    yield 's.?procMount.orValue("Default") != "Default"'
    accepted = RESTRICTED_CAPABILITIES if level == "restricted" else DEFAULT_CAPABILITIES
    yield some("s", "capabilities.add", "k", f"!(k in {names(accepted)})")
    if level == "restricted":
        yield "s.?allowPrivilegeEscalation.orValue(false)"
