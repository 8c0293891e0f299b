"""Container with several GPUs and a small /dev/shm.

## What it checks

A container requests two or more devices of a pool in its resources, and mounts no volume at
`/dev/shm`. The rule skips Pods with `hostIPC: true`, which use the `/dev/shm` of the node. It also
skips Ray clusters and LLMInferenceServices: their operators add the volume.

## Why

Container runtimes limit `/dev/shm` to 64 MiB. Training on several GPUs needs more: NCCL exchanges
data between the GPUs of a Pod there, and so do the workers of PyTorch data loaders. Without the
volume, they fail with `No space left on device` or `Bus error`, often only after hours of training.

## Denied

```yaml
apiVersion: v1
kind: Pod
metadata:
  name: train
spec:
  containers:
    - name: train
      image: nvcr.io/nvidia/pytorch:26.01-py3
      resources:
        limits:
          nvidia.com/gpu: 8
```

## Use instead

```yaml
apiVersion: v1
kind: Pod
metadata:
  name: train
spec:
  containers:
    - name: train
      image: nvcr.io/nvidia/pytorch:26.01-py3
      resources:
        limits:
          nvidia.com/gpu: 8
      volumeMounts:
        - name: shm
          mountPath: /dev/shm
  volumes:
    - name: shm
      emptyDir:
        medium: Memory
```

Data in this volume counts toward the memory limit of the container.

## Settings

None beyond the rule's action.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import Container, DeviceResource, Pod
from policies.kubernetes.quantity import NANOS, parse_quantity

ID = "missing-shared-memory"

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a mount path of a container
# Sources: ray-project/kuberay, controllers/ray/common/pod.go; kserve/kserve, config/llmisvcconfig.
_ADDED_BY_OPERATOR = frozenset({"LLMInferenceService", "RayCluster", "RayJob", "RayService"})


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each container with several devices and no volume for shared memory."""
    if pod.spec.host_ipc or pod.kind in _ADDED_BY_OPERATOR:
        return
    for resource in pod.device_resources():
        container, name = resource.container, resource.name
        count = _count(resource, context)
        if count > 1 and not _mounts_shared_memory(container):
            yield Finding(
                ID,
                pod.at(container.field),
                "a container with several GPUs has no volume for shared memory",
                f'container "{container.name}" requests {name}: {count} and mounts no volume at '
                f"{SHARED_MEMORY}, which container runtimes limit to 64 MiB",
                "Add volumes: [{name: shm, emptyDir: {medium: Memory}}] to the Pod, and "
                f"volumeMounts: [{{name: shm, mountPath: {SHARED_MEMORY}}}] to the container",
            )


def _count(resource: DeviceResource, context: Context) -> int:
    """Return how many devices of a pool the container requests; shares and parts do not count.

    Several shares can be of one device.
    """
    limit_or_request = next(iter(resource.quantities.values()))
    count = parse_quantity(limit_or_request) // NANOS
    if count > 1 and any(
        resource.name not in pool.shared_resources
        and resource.name not in pool.fractional_resources
        for pool in context.candidates(resource.name)
    ):
        return count
    return 0


def _mounts_shared_memory(container: Container) -> bool:
    return any(
        posixpath.normpath(mount.mount_path or "") == SHARED_MEMORY
        for mount in container.spec.volume_mounts or ()
    )
