"""More than one share of a time-sliced device in one container.

## What it checks

A resource that the policy marks as shared (`nvidia.com/gpu.shared`: time-slicing or MPS) is
requested at most once per container.

## Why

Two shares are not twice the compute: they may be the same share of the same GPU, and they take a
place away from another workload. NVIDIA's device plugin rejects them when configured to, but
only once the Pod is on the node.

## Denied

```yaml
apiVersion: v1
kind: Pod
metadata:
  name: notebook
spec:
  containers:
    - name: notebook
      image: quay.io/jupyter/pytorch-notebook:cuda12-2026-01-05
      resources:
        limits:
          nvidia.com/gpu.shared: 2
```

## Use instead

```yaml
apiVersion: v1
kind: Pod
metadata:
  name: notebook
spec:
  containers:
    - name: notebook
      image: quay.io/jupyter/pytorch-notebook:cuda12-2026-01-05
      resources:
        limits:
          nvidia.com/gpu.shared: 1
```

## Settings

- `pools[].sharedResources`: the resources that are shares of a device.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import DeviceResource, Pod
from policies.kubernetes.quantity import NANOS, parse_quantity
from policies.policy import Pool

ID = "shared-device-count"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each container that requests more than one share of a device."""
    written = {request.path for request in context.device_requests}
    for resource in pod.device_resources():
        pool = context.policy.pool_of_resource(resource.name)
        if pool is not None and resource.name in pool.shared_resources:
            yield from _check(pod, resource, pool, written)


def _check(
    pod: Pod, resource: DeviceResource, pool: Pool, written: Container[str]
) -> Iterator[Finding]:
    sides = {pod.at(resource.field(side)): count for side, count in resource.quantities.items()}
    # What the author wrote comes first: a mutation has filled in the other side.
    for path in sorted(sides, key=lambda path: path not in written):
        if parse_quantity(sides[path]) > NANOS:
            yield Finding(
                ID,
                path,
                "more than one share of a device",
                f'container "{resource.container.name}" asks for {sides[path]} of {resource.name}, '
                f"which is a share of a device of pool {pool.name}: a second share adds no compute",
                f"Write {resource.name}: 1 under limits and leave it out of requests, or ask for a "
                "whole device",
            )
            return
