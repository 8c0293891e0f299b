"""Container with several GPUs and a small /dev/shm.

## What it checks

A container requests several devices of a pool in its resources and mounts no volume at `/dev/shm`.
Not checked are Pods that share the node's IPC namespace, whose `/dev/shm` is that of the node, and
the templates of Ray clusters and LLMInferenceServices: their operators add the volume.

## Why

Container runtimes limit `/dev/shm` to 64 MiB. Processes that use several GPUs exchange data there:
NCCL between the GPUs of one Pod, PyTorch's data loaders with several workers. They fail with
`No space left on device` or `Bus error`, often only hours into the training.

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

What is written there counts as memory of the container.

## Settings

None beyond the rule's action.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import Container, Pod
from policies.kubernetes.quantity import NANOS, parse_quantity

ID = "missing-shared-memory"

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a mount path of a container
# Sources: ray-project/kuberay, controllers/ray/common/pod.go; kserve/kserve, config/llmisvcconfig.
_ADDED_BY_OPERATOR = frozenset({"LLMInferenceService", "RayCluster", "RayJob", "RayService"})


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each container with several devices and no volume for shared memory."""
    if pod.spec.host_ipc or pod.kind in _ADDED_BY_OPERATOR:
        return
    for container in pod.containers():
        if container.kind == "ephemeralContainers":
            continue
        for name, count in _several(container, context):
            yield Finding(
                ID,
                pod.at(container.field),
                "a container with several GPUs has little shared memory",
                f'container "{container.name}" requests {name}: {count} and mounts no volume at '
                f"{SHARED_MEMORY}, which runtimes limit to 64 MiB",
                "Add volumes: [{name: shm, emptyDir: {medium: Memory}}] to the Pod and "
                f"volumeMounts: [{{name: shm, mountPath: {SHARED_MEMORY}}}] to the container",
            )


def _several(container: Container, context: Context) -> Iterator[tuple[str, int]]:
    """Yield name and number of the pools' devices that the container requests several of."""
    for mount in container.spec.volume_mounts or ():
        if posixpath.normpath(mount.mount_path or "") == SHARED_MEMORY:
            return
    quantities = {**container.resources("requests"), **container.resources("limits")}
    for name, quantity in quantities.items():
        pool = context.pool_of_resource(name)
        count = parse_quantity(quantity) // NANOS
        # Several shares can be of one device.
        if count > 1 and pool is not None and name not in pool.shared_resources:
            yield name, count
