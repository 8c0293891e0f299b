"""Pod that requests more devices of a pool than the policy allows."""

from __future__ import annotations

from collections.abc import Iterator

from policies.candidates import describe_others, failing
from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import Pod
from policies.requests import peak_in_pool

ID = "oversized-device-request"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each request of too many devices in each of its pools."""
    for request in context.distinct_requests:
        oversized = failing("size", pod, request, context)
        if not oversized:
            continue
        pool, largest = oversized[0], max(each.largest_request or 0 for each in oversized)
        several = len([each for each in context.device_requests if pool in each.pools]) > 1
        together = " in all containers together" if several else ""
        yield Finding(
            ID,
            request.path,
            "the Pod requests more devices than one Pod may have",
            f"the Pod needs {peak_in_pool(pod, pool, context)} devices of pool {pool.name} "
            f"at a time; the policy allows {pool.largest_request} for one Pod"
            f"{describe_others(oversized, 'size', request)}",
            f"Request {largest} or fewer{together}, or split the work into several Pods",
        )
