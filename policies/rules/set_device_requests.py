"""Missing requests and limits of device resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from policies.context import Context
from policies.kubernetes.editor import Addition
from policies.kubernetes.pod import Pod
from policies.kubernetes.quantity import is_extended_resource_name

ID = "device-requests"
SUMMARY = "equal requests and limits of device resources"


def changes(pod: Pod, context: Context) -> Iterator[Addition]:
    """Fill limits from requests, and for the resources of pools also requests from limits.

    API servers do the latter themselves, so a Pod that requests no device stays as it is.
    """
    if all(len(resource.quantities) == 2 for resource in pod.device_resources):
        return
    for container in pod.containers:
        resources = container.spec.resources
        if resources is None:
            continue
        limits, requests = resources.limits or {}, resources.requests or {}
        path = ("spec", container.kind, container.position, "resources")
        if missing := _missing(limits, requests):
            yield Addition(resources, (*path, "limits"), missing)
        of_pools = {name: limits[name] for name in limits if context.pools_of_resource(name)}
        if context.device_requests and (missing := _missing(requests, of_pools)):
            yield Addition(resources, (*path, "requests"), missing)


def _missing(present: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the extended resources of the other side, without those that have a quantity."""
    return {
        name: quantity
        for name, quantity in other.items()
        if name not in present and quantity is not None and is_extended_resource_name(name)
    }
