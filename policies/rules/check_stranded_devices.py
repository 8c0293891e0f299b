"""GPU Pod that makes other devices of its node useless."""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.pod import Pod
from policies.reach import selected_nodes
from policies.requests import needed_devices

ID = "stranded-devices"

_CHANNEL = "compute-domain-default-channel.nvidia.com"
"""The DeviceClass of IMEX channels. NVIDIA's DRA driver publishes one for each node
(NVIDIA/k8s-dra-driver-gpu, ``cmd/compute-domain-kubelet-plugin``)."""


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a warning if the Pod takes the only IMEX channel of a node, and a part of its GPUs."""
    nodes = context.facts.nodes
    if nodes is None or not pod.spec.resource_claims:
        return
    claims = (n for n in context.claims(pod) if any(_CHANNEL in c for c in n.used_requests))
    if (channel := next(claims, None)) is None:
        return
    selected = selected_nodes(pod, context.requested_pools, context, nodes)
    for name, count in needed_devices(pod, context).items():
        offers = nodes.offers(name, selected & nodes.offering(name, count))
        left = min(offers, default=count) - count
        if left > 0:
            yield Finding(
                ID,
                channel.path,
                "the Pod takes the IMEX channel of a node, and a part of its devices",
                f"the Pod takes the only IMEX channel of its node, and requests {count} of "
                f"{left + count} {name}: no other Pod with a channel can use the other {left}",
                f"Request {left + count} {name}, so that fewer Pods use whole nodes, or remove the "
                "claim if the Pod needs no memory of GPUs on other nodes",
                "warn",
            )
