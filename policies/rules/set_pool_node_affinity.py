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

from collections.abc import Iterator
from typing import Any

from policies.context import Context
from policies.kubernetes.editor import Addition
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import REQUIRED, Alternative, required_terms, requires

ID = "pool-node-affinity"
SUMMARY = "required node affinity to the pool's nodes"

_TERMS = ("affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")


def additions(pod: Pod, context: Context) -> Iterator[Addition]:
    """Require the labels of each pool that the Pod cannot do without, in every term."""
    selected = {key: value or "" for key, value in (pod.spec.node_selector or {}).items()}
    labels = {
        (key, value): None
        for request in context.device_requests
        if request.certain
        for key, value in request.pool.node_selector.items()
        if selected.get(key) != value
    }
    if not labels:
        return
    terms = required_terms(pod.spec)
    if terms is None:
        yield Addition(_TERMS, [{"matchExpressions": [_in(*label) for label in labels]}])
        return
    for index, term in enumerate(terms):
        expressions = tuple(term.match_expressions or ())
        if not expressions and not term.match_fields:
            continue
        alternative = Alternative(selected, expressions, (), "")
        missing = [_in(*label) for label in labels if not requires(alternative, *label)]
        if missing:
            yield Addition((*_TERMS, index, "matchExpressions"), missing)


def _in(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": [value]}
