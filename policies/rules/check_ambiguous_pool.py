"""GPU Pod for which gpufence cannot choose between pools."""

from __future__ import annotations

from collections.abc import Iterator

from policies.candidates import describe_selection
from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import REQUIRED_TERMS
from policies.rules.set_pool_node_affinity import MOST_NEW_TERMS, exceeds_limit

ID = "ambiguous-pool"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each request that pools with different RuntimeClasses can meet."""
    several = [
        request
        for request in context.distinct_requests
        if request.certain and len(request.pools) > 1
    ]
    if not several:
        return
    for request in several:
        if pod.spec.runtime_class_name or len({p.runtime_class for p in request.pools}) == 1:
            continue
        classes = ", ".join(
            f"pool {pool.name} ({pool.runtime_class or 'no RuntimeClass'})"
            for pool in request.pools
        )
        yield Finding(
            ID,
            request.path,
            "the Pod can use pools with different RuntimeClasses",
            f"these pools offer {request.what}: {classes}; a Pod has one RuntimeClass",
            f"Choose a pool: set {describe_selection(request.pools)}. Or set runtimeClassName",
        )
    if exceeds_limit(pod, context):
        pools = several[0].pools
        yield Finding(
            ID,
            pod.at(REQUIRED_TERMS),
            "the node selection has too many terms",
            f"{several[0].pool_names} offer {several[0].what}; to require their nodes, gpufence "
            f"would have to add more than {MOST_NEW_TERMS} node selector terms",
            f"Choose a pool: set {describe_selection(pools)}. Or use fewer terms",
        )
