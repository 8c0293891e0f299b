"""GPU Pod in a namespace that may not use the pool.

## What it checks

Where the policy names the namespaces that may request a pool (by name, or by labels that a
namespace carries), a request from any other namespace is a finding. A namespace whose labels are
not known is refused only where the policy says so.

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
- `pools[].allowedNamespaces.unknown`: what becomes of a namespace whose labels are not known.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.facts import Facts
from policies.finding import Finding
from policies.kubernetes.pod import Pod
from policies.policy import Policy, Tenants
from policies.requests import may_request

ID = "pool-not-allowed"


def check(pod: Pod, _policy: Policy, facts: Facts) -> Iterator[Finding]:
    """Yield a finding for each pool that the namespace may not request."""
    seen = set()
    for request in pod.requests:
        pool = request.pool
        if pool in seen or pool.tenants is None or may_request(pool, facts):
            continue
        seen.add(pool)
        yield Finding(
            ID,
            request.path,
            "the namespace may not use these GPU nodes",
            f"{request.what} is a device of pool {pool.name}, which is for "
            f"{_describe(pool.tenants)}; this is namespace {facts.namespace}",
            "Move the work to such a namespace, or ask the platform team for access",
        )


def _describe(tenants: Tenants) -> str:
    parts = []
    if tenants.names:
        parts.append(f"namespaces {', '.join(sorted(tenants.names))}")
    if tenants.labels:
        labels = ", ".join(f"{key}={value}" for key, value in sorted(tenants.labels.items()))
        parts.append(f"namespaces labelled {labels}")
    return " and ".join(parts)
