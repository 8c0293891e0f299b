"""NVIDIA_VISIBLE_DEVICES removed from containers that request devices."""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.device_injection import values
from policies.kubernetes.editor import Removal
from policies.kubernetes.pod import Pod
from policies.rules.check_device_leak import shows_devices
from policies.vocabulary import visible_devices_variables

ID = "assigned-devices"
SUMMARY = "a variable that overrides the devices that a container requests"


def changes(pod: Pod, context: Context) -> Iterator[Removal]:
    """Yield each variable that shows a container other devices than it gets, the last one first.

    Source: ``pkg/kubelet/kubelet_pods.go``, GenerateRunContainerOptions, appends the variables of
    the container to those of the device plugin, and the last value counts.
    """
    requesting = {request.container for request in context.device_requests if request.resource}
    names = visible_devices_variables(context.policy)
    for container in pod.containers:
        if (container.kind, container.position) not in requesting:
            continue
        found = [(i, each.name) for i, each in enumerate(container.env) if each.name in names]
        known = values(container.env) if found else {}
        for index, name in reversed(found):
            if shows_devices(name, known[name]):
                path = ("spec", container.kind, container.position, "env")
                yield Removal(container.spec, path, index)
