"""The runtime class of the pool.

## What it adds

The RuntimeClass that the policy names for the pool, where the Pod names none and the cluster has
it. A Pod whose request the devices of another pool would meet as well gets none.

## Why

On some clusters the NVIDIA runtime is not the nodes' default, and a container then starts without
its GPU. The API server rejects a Pod with a RuntimeClass that does not exist, so where it
is missing or unknown, nothing is added.

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
```

## After

```yaml
spec:
  runtimeClassName: nvidia
```

## Settings

```yaml
pools:
  - runtimeClass: nvidia
```

- `pools[].runtimeClass`: the name of the RuntimeClass.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.kubernetes.editor import Addition
from policies.kubernetes.pod import Pod

ID = "gpu-runtime-class"
SUMMARY = "the pool's runtime class"


def additions(pod: Pod, context: Context) -> Iterator[Addition]:
    """Name the first requested pool's runtime class, if the cluster has it."""
    if pod.spec.runtime_class_name:
        return
    for request in context.device_requests:
        # A request that another pool may satisfy is not tied to this pool's runtime.
        name = request.pool.runtime_class if request.certain else None
        if name and name in (context.facts.runtime_classes or ()):
            yield Addition(("runtimeClassName",), name)
            return
