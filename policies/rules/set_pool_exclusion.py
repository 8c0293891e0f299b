"""Node affinity that keeps a Pod with a wildcard toleration off GPU nodes.

## What it adds

If a Pod requests no device of a pool, tolerates every taint (`operator: Exists` without a key), and
its node selection does not exclude the nodes of the pool, the rule excludes them: it adds a label
of the pool with `NotIn` or `DoesNotExist` to every term of the required node affinity that can
match these nodes. If the Pod has no required node affinity, the rule adds one.

It adds nothing to Pods of DaemonSets: node agents run on every node. It adds nothing for a
toleration with the key of a pool's taint: `pool-trespass` denies such a Pod.

## Why

Controllers, backup jobs and monitors often tolerate every taint, so that they run on nodes under
repair. Few of them are meant for GPU nodes. The Pod keeps its toleration for all other taints.

## Before

```yaml
apiVersion: v1
kind: Pod
metadata:
  name: controller
spec:
  tolerations:
    - operator: Exists
  containers:
    - name: controller
      image: registry.example/controller:1
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
                operator: NotIn
                values: ["true"]
```

## Settings

- `pools[].nodeSelector`, `pools[].matchExpressions`: the labels that identify the pool's nodes. The
  rule excludes the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policies.context import Context
from policies.kubernetes.core_v1 import NodeSelectorTerm, Requirement
from policies.kubernetes.editor import Addition
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import (
    REQUIRED_TERMS,
    is_wildcard,
    required_terms,
)
from policies.kubernetes.selector import can_match
from policies.policy import Pool
from policies.reach import is_daemon_set_pod, pools_by_toleration
from policies.rules.set_pool_node_affinity import TERMS, affinity_of

ID = "pool-exclusion"
SUMMARY = "the node affinity that keeps a wildcard toleration off the nodes of the pool"


def changes(pod: Pod, context: Context) -> Iterable[Addition]:
    """Exclude the pools that a wildcard opens, in every term that can match their nodes."""
    wildcards = [each for each in pod.spec.tolerations or () if is_wildcard(each)]
    # The node affinity for the pool of a certain request excludes the other pools.
    if (
        not wildcards
        or any(request.certain for request in context.device_requests)
        or is_daemon_set_pod(pod, context)
    ):
        return ()
    pools = pools_by_toleration(pod, wildcards, context)
    return _additions(pod, pools) if pools else ()


def _additions(pod: Pod, pools: Iterable[Pool]) -> Iterator[Addition]:
    terms = required_terms(pod.spec)
    if terms is None:
        term = NodeSelectorTerm(_exclusions(pools))
        yield Addition(pod.spec, ("spec", "affinity"), affinity_of([term]))
        return
    by_path = {alternative.path: alternative for alternative in pod.selection()}
    for index, each in enumerate(terms):
        alternative = by_path.get(f"{REQUIRED_TERMS}[{index}]")
        if alternative is not None:
            matched = [pool for pool in pools if can_match(alternative, pool.selector)]
            if matched:
                path = (*TERMS, index, "matchExpressions")
                yield Addition(each, path, _exclusions(matched))


def _exclusions(pools: Iterable[Pool]) -> list[Requirement]:
    """Return expressions that no node of the pools meets. Pools with one label share one."""
    unwanted: dict[str, list[str]] = {}
    for pool in pools:
        key, values = pool.first_label
        if not values or unwanted.get(key) == []:
            unwanted[key] = []
        else:
            unwanted.setdefault(key, []).extend(values)
    return [
        Requirement(key, "NotIn", [*dict.fromkeys(values)])
        if values
        else Requirement(key, "DoesNotExist")
        for key, values in unwanted.items()
    ]
