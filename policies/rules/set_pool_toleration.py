"""Tolerations for the taints of the pool."""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.kubernetes.core_v1 import Toleration
from policies.kubernetes.editor import Addition
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import Taint, tolerates

ID = "pool-toleration"
SUMMARY = "the tolerations for the taints of the pool"


def changes(pod: Pod, context: Context) -> Iterator[Addition]:
    """Append a toleration for each taint of the requested pools without one."""
    tolerations = list(pod.spec.tolerations or ())
    added: list[Toleration] = []
    for pool in context.requested_pools:
        for taint in pool.tolerated:
            if not _is_tolerated(taint, tolerations):
                added.append(toleration(taint))
                tolerations.append(added[-1])
    if added:
        yield Addition(pod.spec, ("spec", "tolerations"), added)


def _is_tolerated(taint: Taint, tolerations: list[Toleration]) -> bool:
    # gpufence appends its own. A loop, because any() costs twice the time.
    for each in reversed(tolerations):  # noqa: SIM110
        if tolerates(each, taint):
            return True
    return False


def toleration(taint: Taint) -> Toleration:
    """Return the toleration of a pool's taint, of any value if the policy names none."""
    operator = "Exists" if taint.value is None else "Equal"
    return Toleration(taint.key, operator, taint.value, taint.effect)
