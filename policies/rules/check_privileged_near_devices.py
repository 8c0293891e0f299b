"""Privileged container that can run on GPU nodes without a GPU request.

## What it checks

A privileged container in a Pod that requests no device of a pool and tolerates the taint of the
pool. Most such Pods are node agents: `pool-trespass` allows them as Pods of a DaemonSet.

## Why

A privileged container can open every device file of its node, whichever Pod owns the device. Some
node agents need this. The rule lists them; its default action is `warn`.

## Denied

```yaml
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: agent
spec:
  selector:
    matchLabels: {app: agent}
  template:
    metadata:
      labels: {app: agent}
    spec:
      tolerations:
        - operator: Exists
      containers:
        - name: agent
          image: registry.example/agent:1
          securityContext:
            privileged: true
```

## Use instead

```yaml
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: agent
spec:
  selector:
    matchLabels: {app: agent}
  template:
    metadata:
      labels: {app: agent}
    spec:
      tolerations:
        - operator: Exists
      containers:
        - name: agent
          image: registry.example/agent:1
          securityContext:
            capabilities:
              add: [NET_ADMIN]
```

## Settings

- `pools[].taints`: the taints of the GPU nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import reached_taint
from policies.kubernetes.selector import can_match

ID = "privileged-near-devices"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each privileged container of a Pod that can run in a foreign pool."""
    privileged = [each for each in pod.containers if each.security_context.privileged]
    if not privileged or context.device_requests:
        return
    tolerations = pod.spec.tolerations or ()
    pools = [
        pool
        for pool in context.policy.pools
        if any(reached_taint(toleration, pool.taints) for toleration in tolerations)
        and any(can_match(alternative, pool.selector) for alternative in pod.selection())
    ]
    names = ", ".join(pool.name for pool in pools)
    for container in privileged if pools else ():
        yield Finding(
            ID,
            pod.at(f"{container.field}.securityContext.privileged"),
            "a privileged container can open the devices of GPU nodes",
            f'container "{container.name}" is privileged and requests no device, and its Pod can '
            f"run on the nodes of pool {names}",
            "Replace privileged with the capabilities that the container needs, or exclude GPU "
            "nodes in the node affinity",
        )
