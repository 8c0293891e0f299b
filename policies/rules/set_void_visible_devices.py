"""NVIDIA_VISIBLE_DEVICES=void in containers of a GPU Pod that get no device by a variable.

## What it adds

`NVIDIA_VISIBLE_DEVICES: void` in every container and init container of a GPU Pod that requests no
device in its resources and does not set the variable. The same applies to ephemeral containers that
`kubectl debug` adds to a GPU Pod. gpufence adds nothing if the Pod requests only devices of other
vendors.

A container with a resource claim (DRA) gets the variable, too. NVIDIA's driver sets the same value
for each container with a device. A container whose claim has no device for it would otherwise see
every GPU.

## Why

CUDA base images set the variable to `all`. If the NVIDIA runtime is the default runtime of the
node, a sidecar with such an image sees every GPU of the node, including the GPUs of other Pods. The
same is true for a debug container, which cannot request a device.

## Before

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
          nvidia.com/gpu: 1
    - name: log-shipper
      image: nvcr.io/nvidia/cuda:13.0.1-base-ubuntu24.04
```

## After

```yaml
spec:
  containers:
    - {}
    - env:
        - name: NVIDIA_VISIBLE_DEVICES
          value: void
```
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.device_injection import VISIBLE_DEVICES
from policies.kubernetes.core_v1 import EnvVar
from policies.kubernetes.editor import Addition
from policies.kubernetes.pod import Pod, new_debug_containers
from policies.requests import requesting_containers

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
        requesting = requesting_containers(context.device_requests)
        containers = [
            container
            for container in pod.containers
            if (container.kind, container.position) not in requesting
        ]
    for container in containers:
        if VISIBLE_DEVICES not in [variable.name for variable in container.env]:
            path = ("spec", container.kind, container.position, "env")
            yield Addition(container.spec, path, [EnvVar(VISIBLE_DEVICES, "void")])
