"""Container that requests more than one share of a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import DeviceResource, Pod
from policies.kubernetes.quantity import NANOS
from policies.policy import Pool
from policies.requests import requests_several

ID = "shared-device-count"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each container that requests more than one share of a device."""
    written: set[str] = set()
    for resource in pod.device_resources:
        pools = context.candidates(resource.name) if requests_several(resource) else ()
        for pool in pools:
            if resource.name in pool.shared_resources:
                written = written or {request.path for request in context.device_requests}
                yield _finding(pod, resource, pool, written)
                break


def _finding(pod: Pod, resource: DeviceResource, pool: Pool, written: set[str]) -> Finding:
    several = {
        pod.at(resource.field(side)): count
        for side, count in resource.quantities.items()
        if resource.nanos[side] > NANOS
    }
    # What the author wrote comes first: a mutation has filled in the other side.
    path = min(several, key=lambda path: path not in written)
    return Finding(
        ID,
        path,
        "a container requests more than one share of a GPU",
        f'container "{resource.container.name}" requests {several[path]} of {resource.name}; in '
        f"pool {pool.name}, a second share adds no compute",
        f"Set {resource.name}: 1 under limits and remove it from requests, or request a whole GPU",
    )
