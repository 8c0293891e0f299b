"""The missing side of a container's device resources.

## What it adds

For every extended resource of a container (`vendor.example/device`, not only GPUs): the limit where
only a request is given, the request where only a limit is given.

## Why

Kubernetes does not overcommit devices: request and limit must be equal. The API server copies a
Pod's limits into its requests, but refuses a Pod that names only requests, and copies nothing into
the templates of Deployments and Jobs.

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
        requests:
          nvidia.com/gpu: 1
```

## After

```yaml
spec:
  containers:
    - resources:
        requests:
          nvidia.com/gpu: 1
        limits:
          nvidia.com/gpu: 1
```

## Settings

None beyond the rule's action.
"""

from __future__ import annotations

from policies.context import Context
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.pod import Pod
from policies.kubernetes.quantity import is_extended_resource_name

ID = "device-requests"
SUMMARY = "the other side, limit or request, of device resources"


def apply(pod: Pod, _context: Context) -> None:
    """Fill limits from requests and requests from limits, for extended resources."""
    for container in pod.device_containers():
        if container.resources("limits").keys() == container.resources("requests").keys():
            continue
        resources = container.raw["resources"]
        _fill(resources, "limits", "requests")
        _fill(resources, "requests", "limits")


def _fill(resources: JSONObject, side: str, other: str) -> None:
    present = resources.get(side) or {}
    missing = {
        name: quantity
        for name, quantity in (resources.get(other) or {}).items()
        if name not in present and is_extended_resource_name(name)
    }
    if missing:
        resources[side] = {**present, **missing}
