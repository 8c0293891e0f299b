"""NVIDIA_VISIBLE_DEVICES=void in containers of a GPU Pod that get no device by a variable."""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.device_injection import VISIBLE_DEVICES
from policies.kubernetes.core_v1 import EnvVar
from policies.kubernetes.editor import Addition
from policies.kubernetes.pod import Pod, new_debug_containers

ID = "void-visible-devices"
SUMMARY = f"{VISIBLE_DEVICES}: void in containers that request no device in their resources"


def changes(pod: Pod, context: Context) -> Iterator[Addition]:
    """Hide the node's GPUs from the containers that get none by the variable."""
    # Of an existing Pod with unresolved claims, the pool is unknown.
    pools = context.requested_pools or context.policy.pools
    if not any("nvidia.com" in pool.vendors for pool in pools):
        return
    if context.request.subresource == "ephemeralcontainers":
        containers = new_debug_containers(pod, context.old_spec)
    else:
        requesting = context.requesting
        containers = [
            container
            for container in pod.containers
            if (container.kind, container.position) not in requesting
        ]
    for container in containers:
        if VISIBLE_DEVICES not in [variable.name for variable in container.env]:
            path = ("spec", container.kind, container.position, "env")
            yield Addition(container.spec, path, [EnvVar(VISIBLE_DEVICES, "void")])
