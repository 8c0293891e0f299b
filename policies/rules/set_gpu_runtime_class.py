"""RuntimeClass of the pool."""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.kubernetes.editor import Addition
from policies.kubernetes.pod import Pod

ID = "gpu-runtime-class"
SUMMARY = "the RuntimeClass of the pool"


def changes(pod: Pod, context: Context) -> Iterator[Addition]:
    """Name the RuntimeClass of the first request's pools, if they agree and the cluster has it."""
    if pod.spec.runtime_class_name:
        return
    for request in context.device_requests:
        # A request that another pool may satisfy is not tied to this pool's runtime.
        names = {pool.runtime_class for pool in request.pools} if request.certain else {None}
        name = names.pop() if len(names) == 1 else None
        if name in context.facts.runtime_classes:
            yield Addition(pod.spec, ("spec", "runtimeClassName"), name)
            return
