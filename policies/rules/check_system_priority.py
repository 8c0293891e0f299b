"""GPU Pod or node agent with a priority class of the system, which evicts other Pods.

## What it checks

The rule reports an object with `priorityClassName: system-node-critical` or
`system-cluster-critical` if it is one of the following:

- A GPU Pod, or the template of one.
- A DaemonSet that tolerates the taints of a pool, and whose node selection does not exclude the
  nodes of the pool.

It does not report the Pods that the DaemonSet controller creates, so that an agent that is in the
cluster already also starts on new nodes. An update of such a DaemonSet is not denied either.

In `kube-system` and in the other namespaces that the policy exempts, Pods may have these classes.

## Why

The scheduler evicts Pods of a lower priority if a Pod does not fit. No priority class that users
create is as high as these two, so the Pod can evict the training of any team. Kubernetes lets every
namespace use them, unless the cluster is configured to require a ResourceQuota (GKE does so).

## Denied

```yaml
apiVersion: v1
kind: Pod
metadata:
  name: train
spec:
  priorityClassName: system-node-critical
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
spec:
  priorityClassName: training # a PriorityClass that a cluster administrator creates
  containers:
    - name: train
      image: nvcr.io/nvidia/pytorch:26.01-py3
      resources:
        limits:
          nvidia.com/gpu: 1
```

## Settings

- `exemptions.namespaces`: the namespaces in which Pods may have these classes.
- `pools[].taints`, `pools[].nodeSelector`: the taints and the labels of the GPU nodes.

Or add an exception for a node agent:

```yaml
spec:
  exceptions:
    - rules: [system-priority]
      namespaces: [monitoring]
      kinds: [DaemonSet]
      names: [node-exporter]
      reason: the agent of the cluster's monitoring
```
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import Pod
from policies.reach import pools_by_toleration

ID = "system-priority"

CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
"""Every cluster has them. Source: ``k8s.io/kubernetes/pkg/apis/scheduling``, SystemPriorityClasses.
"""


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding if the Pod can evict Pods of GPU nodes."""
    name = pod.spec.priority_class_name
    if name not in CLASSES:
        return
    namespace = context.request.namespace
    exemption = f"exempt namespace {namespace} in the policy (exemptions.namespaces)"
    if context.device_requests:
        subject = "a GPU Pod"
        remediation = (
            "Remove priorityClassName, or use a PriorityClass of your cluster. For a Pod of the "
            f"cluster itself, an administrator can {exemption}"
        )
    elif pod.kind == "DaemonSet" and (
        pools := pools_by_toleration(pod, pod.spec.tolerations or (), context)
    ):
        subject = f"a node agent on the nodes of pool {pools[0].name}"
        remediation = (
            f"If all nodes need this agent, {exemption}, or add an exception. Otherwise, remove "
            "priorityClassName, or exclude GPU nodes in the node affinity"
        )
    else:
        return
    yield Finding(
        ID,
        pod.at("spec.priorityClassName"),
        f"{subject} has a priority class of the system",
        f"where a Pod of class {name} does not fit, the scheduler evicts the Pods of all teams",
        remediation,
    )
