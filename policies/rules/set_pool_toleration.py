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

from policies.context import Context
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import FENCING_EFFECTS, Taint, tolerates

ID = "pool-toleration"
SUMMARY = "tolerations of the pool's taints"


def apply(pod: Pod, context: Context) -> None:
    """Append a toleration for each taint of the requested pools that none covers."""
    spec = pod.spec
    for pool in context.requested_pools:
        for taint in pool.taints:
            tolerations = spec.get("tolerations") or []
            if taint.effect in FENCING_EFFECTS and not any(
                tolerates(toleration, taint) for toleration in tolerations
            ):
                spec["tolerations"] = [*tolerations, _toleration(taint)]


def _toleration(taint: Taint) -> JSONObject:
    if taint.value is None:
        return {"key": taint.key, "operator": "Exists", "effect": taint.effect}
    return {
        "key": taint.key,
        "operator": "Equal",
        "value": taint.value,
        "effect": taint.effect,
    }
