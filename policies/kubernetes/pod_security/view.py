"""What the controls read, looked up once for all of them."""

from __future__ import annotations

from typing import NamedTuple

from policies.kubernetes.core_v1 import PodSpec, SecurityContext
from policies.kubernetes.pod import Container, Pod


class PodView(NamedTuple):
    """A Pod, its security context (empty if it has none) and its containers in visiting order.

    ``contexts`` holds the security contexts of all of these.

    ``windows`` is ``spec.os.name``, by which alone Pod Security recognizes a Windows Pod.
    ``user_namespace`` is ``hostUsers: false``, which makes root in the Pod a user without
    privileges on the node.
    """

    pod: Pod
    spec: PodSpec
    context: SecurityContext
    containers: tuple[Container, ...]
    contexts: tuple[SecurityContext, ...]
    windows: bool
    user_namespace: bool


def view(pod: Pod) -> PodView:
    """Return the view of a Pod that all controls share."""
    spec, context, containers = pod.spec, pod.security_context, pod.containers()
    return PodView(
        pod,
        spec,
        context,
        containers,
        (context, *[container.security_context for container in containers]),
        pod.is_windows,
        spec.host_users is False,
    )
