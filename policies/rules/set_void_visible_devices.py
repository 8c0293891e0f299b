"""NVIDIA_VISIBLE_DEVICES=void for containers of a GPU Pod that request no device.

## What it adds

`NVIDIA_VISIBLE_DEVICES: void` in the init containers, sidecars and containers of a GPU Pod that
request no device and do not set the variable themselves, and in the ephemeral containers that
`kubectl debug` adds to one. Where the Pod requests devices of other vendors only, nothing is added.

## Why

CUDA base images set the variable to `all`. On a node whose default runtime is NVIDIA's, a sidecar
made from such an image sees every GPU of the node, also those of other Pods. So does a debug
container: it can request no device, and what its Pod was assigned is not mounted into it.

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

## Settings

None beyond the rule's action.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from policies.context import Context
from policies.kubernetes.editor import Addition
from policies.kubernetes.pod import Pod, new_debug_containers
from policies.policy import Pool
from policies.requests import requesting_containers
from policies.rules.check_device_leak import VISIBLE_DEVICES

ID = "void-visible-devices"
SUMMARY = f"{VISIBLE_DEVICES}: void in containers that request no device"


def additions(pod: Pod, context: Context) -> Iterator[Addition]:
    """Hide the node's GPUs from the containers that request none."""
    if not any(_is_nvidia(pool) for pool in context.requested_pools):
        return
    if context.request.subresource == "ephemeralcontainers":
        containers = new_debug_containers(pod, context.old_spec)
    else:
        requesting = requesting_containers(pod, context.device_requests)
        containers = [
            each for each in pod.containers() if (each.kind, each.position) not in requesting
        ]
    for container in containers:
        if VISIBLE_DEVICES not in [variable.name for variable in container.spec.env or ()]:
            path = (container.kind, container.position, "env")
            yield Addition(path, [{"name": VISIBLE_DEVICES, "value": "void"}])


@lru_cache(maxsize=256)
def _is_nvidia(pool: Pool) -> bool:
    # Checked for every GPU Pod, and pools live as long as their policy.
    names = {*pool.resources.exact, *pool.resources.prefixes}
    return any(name.startswith("nvidia.com/") for name in names) or any(
        name.endswith(".nvidia.com") for name in pool.device_classes
    )
