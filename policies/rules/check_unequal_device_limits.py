"""Device request that is not equal to its limit, or not a whole number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import DeviceResource, Pod, ResourceSide
from policies.kubernetes.quantity import NANOS, is_extended_resource_name, is_whole
from policies.policy import Policy, example_of
from policies.wording import listing

ID = "unequal-device-limits"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each extended resource of each container that the API would reject."""
    requested: set[str] = set()
    written = context.written_devices
    for resource in pod.device_resources if written is None else written:
        if not _is_accepted(resource.nanos) and is_extended_resource_name(resource.name):
            requested = requested or {request.path for request in context.device_requests}
            yield from _check(pod, resource, requested, context.policy)


def _is_accepted(nanos: Mapping[ResourceSide, int]) -> bool:
    """Return whether limit and request are given, whole, not negative and equal."""
    if len(nanos) < 2:
        return False
    limit = nanos["limits"]
    return limit == nanos["requests"] and limit >= 0 and is_whole(limit)


def _check(
    pod: Pod, resource: DeviceResource, requested: set[str], policy: Policy
) -> Iterator[Finding]:
    container, name = resource.container, resource.name
    # The API server reads a key without a value as 0.
    quantities = {side: each or 0 for side, each in resource.quantities.items()}
    count = suggested(resource, policy)
    instead = f"Set {name}: {count}"
    where = pod.at(f"{container.field}.resources")
    # What the author wrote comes first: a mutation may have filled in the other side.
    for side in sorted(quantities, key=lambda side: f"{where}.{side}[{name}]" not in requested):
        quantity = quantities[side]
        nanos = resource.nanos[side]
        if nanos < 0 or not is_whole(nanos):
            yield Finding(
                ID,
                f"{where}.{side}[{name}]",
                "the number of devices is not a whole number",
                f'container "{container.name}" requests {quantity} of {name}; accepted are 0 and '
                "positive whole numbers",
                f"{instead} under limits and remove it from requests"
                f"{_part(resource, nanos, policy)}",
            )
            return
    if len({*resource.nanos.values()}) > 1:
        limit, request = quantities["limits"], quantities["requests"]
        yield Finding(
            ID,
            f"{where}.requests[{name}]",
            "the request and the limit of a device differ",
            f'container "{container.name}" has request {request} and limit {limit} of {name}; for '
            "devices, both must be equal",
            f"{instead} under limits and remove it from requests",
        )
    elif "limits" not in quantities:
        yield Finding(
            ID,
            f"{where}.limits",
            "a device has a request but no limit",
            f'container "{container.name}" requests {quantities["requests"]} of {name} without a '
            "limit; the API server requires a limit for devices",
            f"{instead} under limits instead of requests",
        )


def _part(resource: DeviceResource, nanos: int, policy: Policy) -> str:
    """Return how to request a part of a device, if the author wants one."""
    shares = sorted(name for pool in policy.pools for name in pool.shared_resources.exact)
    if not 0 < nanos < NANOS or resource.name in shares:
        return ""
    partitions = [
        example_of(prefix)
        for pool in policy.pools
        for prefix in pool.resources.prefixes
        if prefix.endswith("/mig-")
    ]
    names = (*shares[:1], *partitions[:1])
    parts = listing([f"{name}: 1" for name in names], "or") if names else ""
    return f". For a part of a GPU, set {parts} instead" if parts else ""


def suggested(resource: DeviceResource, policy: Policy) -> int:
    """Return the number of devices to suggest: a valid limit or request, otherwise rounded up.

    For shares of a device, the number is 1 at most.
    """
    counts = resource.nanos.values()
    pools = policy.pools_of_resource(resource.name)
    shared = bool(pools) and all(resource.name in pool.shared_resources for pool in pools)
    valid = [nanos for nanos in counts if nanos >= NANOS and is_whole(nanos)]
    nanos = valid[0] if valid else max(counts)
    count = -(-nanos // NANOS) if nanos >= 0 else 1
    return min(count, 1) if shared else count
