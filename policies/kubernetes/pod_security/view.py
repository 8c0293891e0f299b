"""What the controls read, looked up once for all of them."""

from __future__ import annotations

from typing import NamedTuple

from policies.kubernetes.objects import JSONObject
from policies.kubernetes.pod import Container, Pod


class ContainerView(NamedTuple):
    """A container of any kind and its security context, empty where it has none."""

    container: Container
    context: JSONObject


class PodView(NamedTuple):
    """A Pod, its security context (empty where it has none) and its containers in visiting order.

    ``fields`` are the names that occur in any of the security contexts: most Pods set few of them,
    and what nobody sets needs no second look. ``windows`` is ``spec.os.name``, the only thing by
    which Pod Security tells a Windows Pod. ``user_namespace`` is ``hostUsers: false``, which makes
    root inside the Pod nobody outside.
    """

    pod: Pod
    spec: JSONObject
    context: JSONObject
    containers: list[ContainerView]
    fields: frozenset[str]
    windows: bool
    user_namespace: bool


def view(pod: Pod) -> PodView:
    """Return the view of a Pod that every control shares."""
    spec = pod.spec
    context = spec.get("securityContext") or {}
    containers = [
        ContainerView(container, container.raw.get("securityContext") or {})
        for container in pod.containers()
    ]
    return PodView(
        pod,
        spec,
        context,
        containers,
        frozenset(context).union(*[container.context for container in containers]),
        pod.is_windows,
        spec.get("hostUsers") is False,
    )
