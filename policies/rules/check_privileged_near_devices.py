"""Privileged container that can run on GPU nodes without a GPU request."""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import reached_taint

ID = "privileged-near-devices"


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a finding for each privileged container of a Pod that can run in a foreign pool."""
    privileged = [each for each in pod.containers if each.security_context.privileged]
    if not privileged or context.device_requests:
        return
    tolerations = pod.spec.tolerations or ()
    pools = [
        pool
        for pool in context.policy.pools
        if any(reached_taint(toleration, pool.taints) for toleration in tolerations)
        and any(map(pool.can_meet, pod.selection()))
    ]
    names = ", ".join(pool.name for pool in pools)
    for container in privileged if pools else ():
        yield Finding(
            ID,
            pod.at(f"{container.field}.securityContext.privileged"),
            "a privileged container can open the devices of GPU nodes",
            f'container "{container.name}" is privileged and requests no device, and its Pod can '
            f"run on the nodes of pool {names}",
            "Replace privileged with the capabilities that the container needs, or exclude GPU "
            "nodes in the node affinity",
        )
