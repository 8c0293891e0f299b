"""More than one share of a time-sliced device in one container.

## What it checks

A resource that the policy marks as shared (`nvidia.com/gpu.shared`: time-slicing or MPS) is
requested at most once per container.

## Why

Two shares are not twice the compute: they may be the same share of the same GPU, and they take a
place away from somebody else. NVIDIA's device plugin refuses them when it is configured to, but
only once the Pod is on the node.

## Denied

```yaml
apiVersion: v1
kind: Pod
metadata:
  name: notebook
spec:
  containers:
    - name: notebook
      image: quay.io/jupyter/pytorch-notebook:cuda12-2026-01-05
      resources:
        limits:
          nvidia.com/gpu.shared: 2
```

## Use instead

```yaml
apiVersion: v1
kind: Pod
metadata:
  name: notebook
spec:
  containers:
    - name: notebook
      image: quay.io/jupyter/pytorch-notebook:cuda12-2026-01-05
      resources:
        limits:
          nvidia.com/gpu.shared: 1
```

## Settings

- `pools[].sharedResources`: the resources that are shares of a device.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.compiled import Policy
from policies.facts import Facts
from policies.finding import Finding
from policies.pod import RESOURCE_SIDES, Pod
from policies.quantity import NANOS, parse_quantity

ID = "shared-device-count"


def check(pod: Pod, policy: Policy, _facts: Facts) -> Iterator[Finding]:
    """Yield a finding for each container that asks for more than one share of a device."""
    for container in pod.device_containers():
        seen = set()
        for side in RESOURCE_SIDES:
            for name, quantity in sorted(container.resources(side).items()):
                pool = policy.pool_of_resource(name) if "/" in name else None
                if pool is None or name in seen or name not in pool.shared_resources:
                    continue
                if parse_quantity(quantity) > NANOS:
                    seen.add(name)
                    yield Finding(
                        ID,
                        pod.at(f"{container.field}.resources.{side}[{name}]"),
                        "more than one share of a device",
                        f'container "{container.name}" asks for {quantity} of {name}, which is a '
                        f"share of a device of pool {pool.name}: a second share adds no compute",
                        f"Write {name}: 1, or ask for a whole device",
                    )
