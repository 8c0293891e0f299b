"""Controllers that read a pod template as it is written: gpufence changes Pods only later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class TemplateReader(NamedTuple):
    """A controller, and what it does where a template does not tolerate the taint of the nodes."""

    name: str
    reason: str
    consequence: str
    place: str = "tolerations of the template"
    """Where it reads tolerations."""


def _of_each_node(name: str, kind: str) -> TemplateReader:
    reason = f"a {kind} creates no Pod on GPU nodes"
    consequence = "creates no Pod on a node whose taint the template does not tolerate"
    return TemplateReader(name, reason, consequence)


READERS: Mapping[str, TemplateReader] = {
    "BroadcastJob": _of_each_node("The controller of OpenKruise", "BroadcastJob"),
    "DaemonSet": _of_each_node("The DaemonSet controller", "DaemonSet"),
    "DaemonSet.apps.kruise.io": _of_each_node("The controller of OpenKruise", "DaemonSet"),
}
"""By the kind of the template (``Template.kind``)."""

AUTOSCALERS: Mapping[str, TemplateReader] = {
    kind: TemplateReader(
        "The cluster autoscaler",
        f"no GPU node fits the template of a {kind}",
        "finds no node that fits, so that it adds none",
    )
    for kind in ("CapacityBuffer", "ProvisioningRequest")
}
"""By the kind of the object that names a PodTemplate."""

KUEUE = TemplateReader(
    "Kueue",
    "Kueue finds no GPU node in its topology",
    "finds no node in the topology of its flavors, so that the workload waits",
    "tolerations of the template, or of the ResourceFlavor",
)
"""Its topology-aware scheduling. Source: kubernetes-sigs/kueue, ``pkg/cache``,
``tas_flavor_snapshot.go``."""
TOPOLOGY_ANNOTATIONS = frozenset(
    f"kueue.x-k8s.io/podset-{how}-topology"
    for how in ("preferred", "required", "slice-required", "unconstrained")
)
