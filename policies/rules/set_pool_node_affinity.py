"""Required node affinity for the nodes of the pool.

## What it adds

The labels of the pool as `In` expressions of the required node affinity. Node selector terms are
ORed, so gpufence adds the expressions to *every* term: a further term would allow more nodes. A
term without expressions and fields matches no node and stays as it is. gpufence does not change
`matchFields`, and adds nothing if the `nodeSelector` or the term already requires the label.

## Why

A toleration allows the nodes of the pool, but does not require them. With the requirement, the
scheduler considers only nodes with the devices, and the cluster autoscaler adds nodes to the right
node group.

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
SUMMARY = "the required node affinity for the nodes of the pool"

_TERMS = ("affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")


def additions(pod: Pod, context: Context) -> Iterator[Addition]:
    """Require the labels of each pool that the Pod needs, in every term."""
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
