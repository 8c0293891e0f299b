"""Pod that requests more devices of a pool than the policy allows.

## What it checks

The number of devices of a pool that the scheduler reserves for the Pod: the sum over containers and
sidecars, or the largest init container if that is more.

## Why

A Pod that requests too many devices by mistake blocks them for other workloads, or stays `Pending`
forever.

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
          nvidia.com/gpu: 80
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
          nvidia.com/gpu: 1
```

## Settings

```yaml
pools:
  - largestRequest: 8
```

- `pools[].largestRequest`: the largest number of the pool's devices that one Pod may request.
  Resource claims (DRA) do not count.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.peak import device_peak
from policies.kubernetes.pod import Pod
from policies.policy import Pool

ID = "oversized-device-request"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each pool of which the Pod requests too many devices."""
    first_of_pool = {request.pool: request for request in reversed(context.device_requests)}
    for pool in context.requested_pools:
        if pool.largest_request is None:
            continue
        count = _peak(pod, pool, context)
        if count > pool.largest_request:
            yield Finding(
                ID,
                first_of_pool[pool].path,
                "the Pod requests more devices than one Pod may have",
                f"the Pod needs {count} devices of pool {pool.name} at a time; the policy allows "
                f"{pool.largest_request} for one Pod",
                f"Request {pool.largest_request} or fewer, or split the work into several Pods",
            )


def _peak(pod: Pod, pool: Pool, context: Context) -> int:
    """Return how many devices of the pool are reserved for the Pod."""
    return sum(
        device_peak(pod.spec.init_containers, pod.spec.containers, name)
        for name in {resource.name for resource in pod.device_resources()}
        if context.pool_of_resource(name) is pool
    )
