"""Tolerations of the pool's taints.

## What it adds

One toleration for each taint of a pool that the Pod requests devices of, unless a toleration of
the Pod covers that taint already, judged as kube-scheduler judges: an empty key with `Exists`
covers every key, an empty effect every effect, and a taint whose value the policy leaves open is
covered by `Exists` only.

Taints of effect `PreferNoSchedule` keep nothing away and need no toleration.

## Why

GPU nodes are tainted so that nothing else lands on them. A GPU Pod without the toleration stays
`Pending` with "untolerated taint", and its author has to know which taint this cluster uses.

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
  tolerations:
    - key: nvidia.com/gpu
      operator: Exists
      effect: NoSchedule
```

## Settings

- `pools[].taints`: the taints, each with `key`, `effect` and, where only one value is meant,
  `value`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import msgspec

from policies.context import Context
from policies.kubernetes.core_v1 import Toleration
from policies.kubernetes.editor import Addition
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import FENCING_EFFECTS, Taint, tolerates

ID = "pool-toleration"
SUMMARY = "tolerations of the pool's taints"


def additions(pod: Pod, context: Context) -> Iterator[Addition]:
    """Append a toleration for each taint of the requested pools that none covers."""
    tolerations = pod.spec.tolerations or []
    added: list[Toleration] = []
    for pool in context.requested_pools:
        for taint in pool.taints:
            if taint.effect in FENCING_EFFECTS and not any(
                tolerates(each, taint) for each in chain(tolerations, added)
            ):
                added.append(_toleration(taint))
    if added:
        yield Addition(("tolerations",), msgspec.to_builtins(added))


def _toleration(taint: Taint) -> Toleration:
    operator = "Exists" if taint.value is None else "Equal"
    return Toleration(taint.key, operator, taint.value, taint.effect)
