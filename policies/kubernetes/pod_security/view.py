"""What the controls read, looked up once for all of them."""

from __future__ import annotations

import msgspec

from policies.kubernetes.core_v1 import Capabilities, PodSpec, SecurityContext
from policies.kubernetes.pod import Container, Pod

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
    privileges on the node.
    """

    pod: Pod
    spec: PodSpec
    context: SecurityContext
    containers: tuple[Container, ...]
    judged: list[Container]
    contexts: list[SecurityContext]
    windows: bool
    user_namespace: bool


def view(pod: Pod) -> PodView:
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
    )
