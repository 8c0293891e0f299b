"""NVIDIA_VISIBLE_DEVICES=void for containers of a GPU Pod that request no device.

## What it adds

`NVIDIA_VISIBLE_DEVICES: void` in the init containers, sidecars and containers of a GPU Pod that
request no device and do not set the variable themselves, and in the ephemeral containers that
`kubectl debug` adds to one. Where the Pod requests devices of other vendors only, nothing is added.

## Why

CUDA base images set the variable to `all`. On a node whose default runtime is NVIDIA's, a sidecar
made from such an image sees every GPU of the node, whoever they are assigned to. So does a debug
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

from functools import lru_cache

from policies.context import Context
from policies.kubernetes.pod import Container, Pod, new_debug_containers
from policies.policy import Pool
from policies.requests import requesting_containers
from policies.rules.check_device_leak import VISIBLE_DEVICES

ID = "void-visible-devices"
SUMMARY = f"{VISIBLE_DEVICES}: void in containers that request no device"


def apply(pod: Pod, context: Context) -> None:
    """Hide the node's GPUs from the containers that request none."""
    if not any(_is_nvidia(request.pool) for request in context.device_requests):
        return
    if context.request.subresource == "ephemeralcontainers":
        for container in new_debug_containers(pod, context.request.old):
            _hide(container)
        return
    requesting = requesting_containers(pod, context.device_requests)
    for container in pod.containers():
        if (container.kind, container.position) not in requesting:
            _hide(container)


def _hide(container: Container) -> None:
    env = container.raw.get("env") or []
    if VISIBLE_DEVICES not in [variable.get("name") for variable in env]:
        container.raw["env"] = [*env, {"name": VISIBLE_DEVICES, "value": "void"}]


@lru_cache(maxsize=256)
def _is_nvidia(pool: Pool) -> bool:
    # Asked for every GPU Pod, about pools that live as long as their policy.
    names = {*pool.resources.exact, *pool.resources.prefixes}
    return any(name.startswith("nvidia.com/") for name in names) or any(
        name.endswith(".nvidia.com") for name in pool.device_classes
    )
