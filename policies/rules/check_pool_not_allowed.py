"""GPU Pod in a namespace that may not use the GPU pool.

## What it checks

If the policy lists the namespaces that may use a pool, by name or by labels, requests from all
other namespaces are findings. If the labels of a namespace are unknown, the policy decides.

## Why

Clusters often reserve a GPU pool for the team that pays for it. Pods of other teams take its
capacity.

## Denied

```yaml
apiVersion: v1
kind: Pod
metadata:
  name: train
  namespace: sandbox
spec:
  containers:
    - name: train
      image: nvcr.io/nvidia/pytorch:26.01-py3
      resources:
        limits:
          nvidia.com/gpu: 1
```

## Use instead

```yaml
apiVersion: v1
kind: Pod
metadata:
  name: train
  namespace: research
spec:
  containers:
    - name: train
      image: nvcr.io/nvidia/pytorch:26.01-py3
      resources:
        limits:
          nvidia.com/gpu: 1
```

## Settings

```yaml
pools:
  - allowedNamespaces:
      names: [research]
```

- `pools[].allowedNamespaces.names`, `pools[].allowedNamespaces.matchLabels`: the namespaces
  that may request the pool.
- `pools[].allowedNamespaces.unknown`: `allow` (the default) or `deny` requests from a namespace
  with unknown labels.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import Pod
from policies.policy import AllowedNamespaces

ID = "pool-not-allowed"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each pool that the namespace may not request."""
    first_of_pool = {request.pool: request for request in reversed(context.device_requests)}
    for pool in context.requested_pools:
        if pool.allowed_namespaces is None or context.may_request(pool):
            continue
        request = first_of_pool[pool]
        yield Finding(
            ID,
            request.path,
            "the namespace may not use this GPU pool",
            f"{request.what} belongs to pool {pool.name}, which is reserved for "
            f"{_describe(pool.allowed_namespaces)}; the Pod is in namespace "
            f"{context.request.namespace}",
            "Use one of these namespaces, or request access from the cluster administrator",
        )


def _describe(allowed: AllowedNamespaces) -> str:
    parts = []
    if allowed.names:
        parts.append(f"namespaces {', '.join(sorted(allowed.names))}")
    if allowed.match_labels:
        labels = ", ".join(f"{key}={value}" for key, value in sorted(allowed.match_labels.items()))
        parts.append(f"namespaces with the labels {labels}")
    return " and ".join(parts)
