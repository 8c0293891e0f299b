"""Device resource whose request and limit differ, or that is no whole number.

## What it checks

Every extended resource of every container and init container: request and limit are equal by value
(`1`, `"1"` and `1000m` are equal), whole and not negative. Where one side is missing, the mutation
`device-requests` fills it from the other; in the template of a core workload (Deployment, Job, ...)
a missing limit stays a finding, because the API server rejects such a template before gpufence is
called.

## Why

Devices cannot be overcommitted or split: the API server rejects such a Pod. In a Deployment, a Job
or a training operator's custom resource that error comes late and in the wrong place; here it
comes with the manifest.

## Denied

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
        limits:
          nvidia.com/gpu: 2
```

## Use instead

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

## Settings

None beyond the rule's action.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import DeviceResource, Pod, ResourceSide
from policies.kubernetes.quantity import NANOS, is_extended_resource_name, is_whole, parse_quantity
from policies.policy import Policy

ID = "unequal-device-limits"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each extended resource of each container that the API would reject."""
    resources = context.written_devices
    refused = [
        resource
        for resource in (pod.device_resources() if resources is None else resources)
        if not _is_accepted(resource.quantities) and is_extended_resource_name(resource.name)
    ]
    if not refused:
        return
    requested = {request.path for request in context.device_requests}
    for resource in refused:
        yield from _check(pod, resource, requested, context.policy)


def _is_accepted(given: Mapping[ResourceSide, Any]) -> bool:
    """Tell whether limit and request are given, whole, not negative and equal."""
    if len(given) < 2:
        return False
    limit = parse_quantity(given["limits"])
    return limit == parse_quantity(given["requests"]) and limit >= 0 and is_whole(limit)


def _check(
    pod: Pod, resource: DeviceResource, requested: Container[str], policy: Policy
) -> Iterator[Finding]:
    container, name, given = resource.container, resource.name, resource.quantities
    instead = f"Write {name}: {_count(resource, policy)}"
    where = pod.at(f"{container.field}.resources")
    # What the author wrote comes first: a mutation may have filled in the other side.
    for side in sorted(given, key=lambda side: f"{where}.{side}[{name}]" not in requested):
        quantity = given[side]
        nanos = parse_quantity(quantity)
        if nanos < 0 or not is_whole(nanos):
            yield Finding(
                ID,
                f"{where}.{side}[{name}]",
                "a device count is not a whole number",
                f'container "{container.name}" asks for {quantity} of {name}; devices are counted '
                "in whole numbers from 0",
                f"{instead} under limits and leave it out of requests",
            )
            return
    if len({parse_quantity(quantity) for quantity in given.values()}) > 1:
        limit, request = given["limits"], given["requests"]
        yield Finding(
            ID,
            f"{where}.requests[{name}]",
            "device request and limit differ",
            f'container "{container.name}" requests {request} and is limited to {limit} of {name}; '
            "devices are not overcommitted, so the two must be equal",
            f"{instead} under limits and leave it out of requests",
        )
    elif "limits" not in given:
        yield Finding(
            ID,
            f"{where}.limits",
            "a device has a request and no limit",
            f'container "{container.name}" requests {given["requests"]} of {name}; for devices the '
            "API server requires the limit and takes the request from it",
            f"{instead} under limits instead of requests",
        )


def _count(resource: DeviceResource, policy: Policy) -> Any:
    """Return how many devices to write: the limit if it is a count, or the request, or the most.

    Of a share there is never more than one.
    """
    counts = {side: parse_quantity(given) for side, given in resource.quantities.items()}
    pool = policy.pool_of_resource(resource.name)
    shared = pool is not None and resource.name in pool.shared_resources
    if shared and max(counts.values()) > 0:
        return 1
    side: ResourceSide
    for side in ("limits", "requests"):
        if counts.get(side, 0) > 0 and is_whole(counts[side]):
            return resource.quantities[side]
    most = -(-max(counts.values()) // NANOS)
    return most if most >= 0 else 1
