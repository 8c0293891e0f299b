"""Tolerations for the taints of the pool.

## What it adds

One toleration for each taint of the pool from which the Pod requests devices, unless the Pod
already tolerates the taint. gpufence compares taints and tolerations as kube-scheduler does: an
empty key with `Exists` matches every key, and an empty effect matches every effect. If the policy
sets no value for a taint, only `Exists` tolerates it. If several pools offer the devices, gpufence
tolerates the taints of each pool that the namespace and the Pod's own node selection allow.

Taints with the effect `PreferNoSchedule` need no toleration.

## Why

GPU nodes have a taint so that other Pods do not run on them. A GPU Pod without the toleration stays
`Pending` with the event "untolerated taint". With this mutation, Pod authors do not need to know
which taint the cluster uses.

## Before

{GPU_POD}

## After

```yaml
spec:
  tolerations:
    - key: nvidia.com/gpu
      operator: Exists
      effect: NoSchedule
```

## Settings

- `pools[].taints`: the taints, each with `key`, `effect` and optionally `value`.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.kubernetes.core_v1 import Toleration
from policies.kubernetes.editor import Addition
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import FENCING_EFFECTS, Taint, tolerates

ID = "pool-toleration"
SUMMARY = "the tolerations for the taints of the pool"


def changes(pod: Pod, context: Context) -> Iterator[Addition]:
    """Append a toleration for each taint of the requested pools without a toleration."""
    tolerations = list(pod.spec.tolerations or ())
    added: list[Toleration] = []
    for pool in context.requested_pools:
        for taint in pool.taints:
            if taint.effect in FENCING_EFFECTS and not _is_tolerated(taint, tolerations):
                added.append(_toleration(taint))
                tolerations.append(added[-1])
    if added:
        yield Addition(pod.spec, ("spec", "tolerations"), added)


def _is_tolerated(taint: Taint, tolerations: list[Toleration]) -> bool:
    # gpufence appends its own. A loop, because any() costs twice the time.
    for toleration in reversed(tolerations):  # noqa: SIM110
        if tolerates(toleration, taint):
            return True
    return False


def _toleration(taint: Taint) -> Toleration:
    operator = "Exists" if taint.value is None else "Equal"
    return Toleration(taint.key, operator, taint.value, taint.effect)
