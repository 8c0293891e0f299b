"""Node affinity that requires the pool's nodes.

## What it adds

The pool's labels as `In` expressions of the required node affinity. Node selector terms are ORed,
so the expressions go into *every* term: adding a term would widen the choice. A term with neither
expressions nor fields matches no node and is left so. `matchFields` stay, and nothing is added
where the Pod's `nodeSelector` or the term itself already requires the label.

## Why

A toleration only permits. Without a requirement the scheduler may try nodes that cannot serve the
Pod, and cluster autoscalers scale the wrong group.

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
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
          - matchExpressions:
              - key: nvidia.com/gpu.present
                operator: In
                values: ["true"]
```

## Settings

- `pools[].nodeSelector`: the labels that identify the pool's nodes.
"""

from __future__ import annotations

from policies.context import Context
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import REQUIRED, Alternative, required_terms, requires
from policies.policy import Pool

ID = "pool-node-affinity"
SUMMARY = "required node affinity to the pool's nodes"


def apply(pod: Pod, context: Context) -> None:
    """Require the labels of each pool that the Pod cannot do without, in every term."""
    for pool in dict.fromkeys(
        request.pool for request in context.device_requests if request.certain
    ):
        _require(pod.spec, pool)


def _require(spec: JSONObject, pool: Pool) -> None:
    labels = spec.get("nodeSelector") or {}
    missing = {key: value for key, value in pool.node_selector.items() if labels.get(key) != value}
    if not missing:
        return
    terms = required_terms(spec)
    if terms is None:
        affinity = _child(_child(spec, "affinity"), "nodeAffinity")
        affinity[REQUIRED] = {
            "nodeSelectorTerms": [{"matchExpressions": [_in(k, v) for k, v in missing.items()]}]
        }
        return
    for term in terms:
        expressions = term.get("matchExpressions") or []
        if not expressions and not term.get("matchFields"):
            continue
        alternative = Alternative(labels, tuple(expressions), (), "")
        added = [_in(k, v) for k, v in missing.items() if not requires(alternative, k, v)]
        if added:
            term["matchExpressions"] = [*expressions, *added]


def _child(parent: JSONObject, key: str) -> JSONObject:
    child: JSONObject = parent.get(key) or {}
    parent[key] = child
    return child


def _in(key: str, value: str) -> JSONObject:
    return {"key": key, "operator": "In", "values": [value]}
