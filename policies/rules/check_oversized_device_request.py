"""Pod that requests more devices of a pool than the policy allows."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from policies.candidates import describe_others, failing
from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import Pod
from policies.requests import devices_in_pool

ID = "oversized-device-request"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each request of too many devices in each of its pools."""
    for request in context.distinct_requests:
        oversized = failing("size", pod, request, context)
        if not oversized:
            continue
        pool, largest = oversized[0], max(each.largest_request or 0 for each in oversized)
        own = [each for each in context.device_requests if pool in each.pools]
        places = "containers and claims" if any(each.claim for each in own) else "containers"
        together = f" in all {places} together" if len(own) > 1 else ""
        needed = devices_in_pool(pod, pool, context)
        what = f"{needed} devices" if isfinite(needed) else "all devices of a node"
        yield Finding(
            ID,
            request.path,
            "the Pod requests more devices than one Pod may have",
            f"the Pod needs {what} of pool {pool.name} "
            f"at a time; the policy allows {pool.largest_request} for one Pod"
            f"{describe_others(oversized, 'size', request)}",
            f"Request {largest} or fewer{together}, or split the work into several Pods",
        )
