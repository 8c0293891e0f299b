"""GPU Pod in a namespace that may not use the GPU pool."""

from __future__ import annotations

from collections.abc import Iterator

from policies.candidates import describe_others, describe_selection, failing
from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import Pod

ID = "pool-not-allowed"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each request that the namespace may make of none of its pools."""
    for request in context.distinct_requests:
        denied = failing("namespace", pod, request, context)
        if not denied:
            continue
        others = [
            exclusion.pool
            for exclusion in request.excluded
            if exclusion.condition == "selection" and context.may_request(exclusion.pool)
        ]
        instead = f"Select nodes of another pool with {describe_selection(others)}. Or use"
        yield Finding(
            ID,
            request.path,
            "the namespace may not use this GPU pool",
            f"{request.what} belongs to pool {denied[0].name}, which is reserved for "
            f"{denied[0].allowed_namespaces}{describe_others(denied, 'namespace', request)}; "
            f"the Pod is in namespace {context.request.namespace}",
            f"{instead if others else 'Use'} one of these namespaces, or request access from the "
            "cluster administrator",
        )
