"""GPU Pod in a namespace that may not use the pool.

## What it checks

Where the policy names the namespaces that may request a pool (by name, or by labels that a
namespace carries), a request from any other namespace is a finding. A namespace whose labels are
not known is denied only where the policy says so.

## Why

A pool that one team paid for should be full of that team's work.

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

- `pools[].allowedNamespaces.names`, `pools[].allowedNamespaces.matchLabels`: who may request it.
- `pools[].allowedNamespaces.unknown`: what happens to a namespace whose labels are not known.
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
            "the namespace may not use these GPU nodes",
            f"{request.what} is a device of pool {pool.name}, which is for "
            f"{_describe(pool.allowed_namespaces)}; this is namespace {context.request.namespace}",
            "Move the work to such a namespace, or ask the platform team for access",
        )


def _describe(allowed: AllowedNamespaces) -> str:
    parts = []
    if allowed.names:
        parts.append(f"namespaces {', '.join(sorted(allowed.names))}")
    if allowed.match_labels:
        labels = ", ".join(f"{key}={value}" for key, value in sorted(allowed.match_labels.items()))
        parts.append(f"namespaces labelled {labels}")
    return " and ".join(parts)
