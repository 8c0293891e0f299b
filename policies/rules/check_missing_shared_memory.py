"""Container with several GPUs and a small /dev/shm."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.core_v1 import is_on_disk, volume_name
from policies.kubernetes.pod import Container, DeviceResource, Pod
from policies.kubernetes.quantity import NANOS

ID = "missing-shared-memory"

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a mount path of a container
# Sources: ray-project/kuberay, controllers/ray/common/pod.go; kserve/kserve, config/llmisvcconfig.
_ADDED_BY_OPERATOR = frozenset(
    {"LLMInferenceService", "LLMInferenceServiceConfig", "RayCluster", "RayJob", "RayService"}
)


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each container with several devices and no volume for shared memory."""
    if pod.spec.host_ipc or pod.kind in _ADDED_BY_OPERATOR:
        return
    several: dict[str, tuple[Container, list[str]]] = {}
    for container, devices in _several(pod, context):
        several.setdefault(container.field, (container, []))[1].append(devices)
    for container, requested in several.values():
        # Whatever adds the image of a container may add its volumes.
        if container.spec.image is None:
            continue
        requests = f'container "{container.name}" requests {", ".join(requested)}'
        volume = _volume_at_shared_memory(container)
        if volume is None:
            yield _without_volume(pod, container, requests)
        elif (index := _index_on_disk(pod, volume)) is not None:
            yield _with_disk(pod.at(f"spec.volumes[{index}].emptyDir"), requests, volume)


def _several(pod: Pod, context: Context) -> Iterator[tuple[Container, str]]:
    """Yield each container that requests several devices of a pool, and its request."""
    for resource in pod.device_resources:
        if count := _count(resource, context):
            yield resource.container, f"{resource.name}: {count}"
    if not pod.spec.resource_claims:
        return
    requested = {request.claim for request in context.device_requests}
    for named in context.claims(pod):
        claim = named.claim
        if named.name in requested and claim and claim.is_for_several and not claim.admin_access:
            for container in pod.containers:
                resources = container.spec.resources
                if any(use.name == named.name for use in (resources and resources.claims) or ()):
                    yield container, f"claim {named.claim_name} for several devices"


def _count(resource: DeviceResource, context: Context) -> int:
    """Return how many devices of a pool the container requests.

    Shares and parts of a device do not count: several can be of one device.
    """
    limit_or_request = next(iter(resource.nanos.values()))
    count = limit_or_request // NANOS
    if count > 1 and any(
        resource.name not in pool.shared_resources
        and resource.name not in pool.fractional_resources
        for pool in context.candidates(resource.name)
    ):
        return count
    return 0


def _without_volume(pod: Pod, container: Container, requests: str) -> Finding:
    return Finding(
        ID,
        pod.at(container.field),
        "a container with several GPUs has no volume for shared memory",
        f"{requests} and mounts no volume at {SHARED_MEMORY}, which container runtimes limit to "
        "64 MiB",
        "Add volumes: [{name: shm, emptyDir: {medium: Memory}}] to the Pod, and "
        f"volumeMounts: [{{name: shm, mountPath: {SHARED_MEMORY}}}] to the container",
    )


def _with_disk(path: str, requests: str, volume: str) -> Finding:
    return Finding(
        ID,
        path,
        "the shared memory of a container with several GPUs is on disk",
        f'{requests} and mounts volume "{volume}" at {SHARED_MEMORY}, an emptyDir on the disk of '
        "the node",
        "Set emptyDir: {medium: Memory}",
    )


def _volume_at_shared_memory(container: Container) -> str | None:
    """Return the name of the volume that is mounted at /dev/shm, if there is one."""
    for mount in container.mounts:
        if posixpath.normpath(mount.mount_path or "") == SHARED_MEMORY:
            return mount.name
    return None


def _index_on_disk(pod: Pod, name: str) -> int | None:
    """Return the index of the volume, if it is an emptyDir on the disk of the node."""
    for index, volume in enumerate(pod.spec.volumes or ()):
        if volume_name(volume, index) == name and is_on_disk(volume):
            return index
    return None
