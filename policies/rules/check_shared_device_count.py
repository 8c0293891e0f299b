"""Container that requests more than one share of a GPU.

## What it checks

A container may request at most one unit of a resource that the policy lists as shared, for example
`nvidia.com/gpu.shared` with time-slicing or MPS.

## Why

Two shares do not give twice the compute: both can be of the same GPU. The second share blocks
another workload. NVIDIA's device plugin can reject such a request, but only after the Pod is on the
node.

## Denied

```yaml
apiVersion: v1
kind: Pod
metadata:
  name: notebook
spec:
  containers:
    - name: notebook
      image: registry.example/notebook:cuda12
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
      image: registry.example/notebook:cuda12
      resources:
        limits:
          nvidia.com/gpu.shared: 1
```

## Settings

- `pools[].sharedResources`: the resources that are shares of a device.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import DeviceResource, Pod
from policies.kubernetes.quantity import NANOS, parse_quantity
from policies.policy import Pool
from policies.requests import requests_several

ID = "shared-device-count"


def check(pod: Pod, context: Context) -> Iterable[Finding]:
    """Return a finding for each container that requests more than one share of a device."""
    several = [
        (resource, pool)
        for resource in pod.device_resources()
        if (pool := _sharing_pool(resource, context)) is not None
    ]
    return _findings(pod, context, several) if several else ()


def _findings(
    pod: Pod, context: Context, several: Iterable[tuple[DeviceResource, Pool]]
) -> Iterator[Finding]:
    written = {request.path for request in context.device_requests}
    for resource, pool in several:
        yield from _check(pod, resource, pool, written)


def _sharing_pool(resource: DeviceResource, context: Context) -> Pool | None:
    """Return the pool whose shares a container requests, if it requests several."""
    pools = context.candidates(resource.name) if requests_several(resource) else ()
    return next((pool for pool in pools if resource.name in pool.shared_resources), None)


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
                "a container requests more than one share of a GPU",
                f'container "{resource.container.name}" requests {sides[path]} of '
                f"{resource.name}; in pool {pool.name}, a second share adds no compute",
                f"Set {resource.name}: 1 under limits and remove it from requests, or request a "
                "whole GPU",
            )
            return
