"""GPU Pod for which gpufence cannot choose between pools.

## What it checks

Several pools offer the devices that a GPU Pod requests, and the Pod can use more than one of them.
The rule reports the Pod in one of the following cases:

- The pools have different RuntimeClasses, and the Pod sets no `runtimeClassName`.
- The labels of the pools have different keys, so that each node selector term of the Pod needs a
  copy for each pool, and this takes more than 100 new terms.

## Why

A Pod has one RuntimeClass. With the RuntimeClass of another pool, its containers do not start, or
start without their GPUs. Each node selector term costs the scheduler time for each node.

## Denied

{GPU_POD}

## Use instead

```yaml
apiVersion: v1
kind: Pod
metadata:
  name: train
spec:
  nodeSelector:
    nvidia.com/gpu.product: NVIDIA-L4
  containers:
    - name: train
      image: nvcr.io/nvidia/pytorch:26.01-py3
      resources:
        limits:
          nvidia.com/gpu: 1
```

## Settings

```yaml
spec:
  pools:
    - name: l4
      resources: [nvidia.com/gpu]
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}
      runtimeClass: nvidia-legacy
    - name: h100
      resources: [nvidia.com/gpu]
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
      runtimeClass: nvidia
```

- `pools[].runtimeClass`: the name of the RuntimeClass.
- `pools[].nodeSelector`: the labels of the pool's nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.candidates import describe_selection
from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import REQUIRED_TERMS
from policies.rules.set_pool_node_affinity import MOST_NEW_TERMS, exceeds_limit

ID = "ambiguous-pool"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each request that pools with different RuntimeClasses can meet."""
    several = [
        request
        for request in context.distinct_requests
        if request.certain and len(request.pools) > 1
    ]
    if not several:
        return
    for request in several:
        if pod.spec.runtime_class_name or len({p.runtime_class for p in request.pools}) == 1:
            continue
        classes = ", ".join(
            f"pool {pool.name} ({pool.runtime_class or 'no RuntimeClass'})"
            for pool in request.pools
        )
        yield Finding(
            ID,
            request.path,
            "the Pod can use pools with different RuntimeClasses",
            f"these pools offer {request.what}: {classes}; a Pod has one RuntimeClass",
            f"Choose a pool: set {describe_selection(request.pools)}. Or set runtimeClassName",
        )
    if exceeds_limit(pod, context):
        pools = several[0].pools
        yield Finding(
            ID,
            pod.at(REQUIRED_TERMS),
            "the node selection has too many terms",
            f"{several[0].pool_names} offer {several[0].what}; to require their nodes, gpufence "
            f"would have to add more than {MOST_NEW_TERMS} node selector terms",
            f"Choose a pool: set {describe_selection(pools)}. Or use fewer terms",
        )
