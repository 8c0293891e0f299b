"""GPU Pod that makes other devices of its node useless."""

from __future__ import annotations

from collections.abc import Iterator

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.nodes import NodeIndex, NodeSet, Room, Shape
from policies.kubernetes.pod import Pod, host_peaks
from policies.reach import can_be_added, selected_nodes
from policies.requests import claimed_of_host, needed_devices
from policies.rules.check_pool_requirements import largest_request, shown_host
from policies.wording import listing

ID = "stranded-devices"
TAKES_CHANNEL = "the Pod takes the IMEX channel of a node, and a part of its devices"

_CHANNEL = "compute-domain-default-channel.nvidia.com"
"""The DeviceClass of IMEX channels. NVIDIA's DRA driver publishes one for each node
(NVIDIA/k8s-dra-driver-gpu, ``cmd/compute-domain-kubelet-plugin``)."""
_HOST = ("cpu", "memory")
LEAST = 4
"""A device is useful with this part, a quarter, of its share of the node."""


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a warning if other Pods cannot use the other devices of any node that the Pod gets."""
    nodes = context.facts.nodes
    if nodes is None:
        return
    channels = [n for n in context.claims(pod) if any(_CHANNEL in c for c in n.used_requests)]
    names = {channel.claim_name for channel in channels}
    if len(names) > 1:
        yield Finding(
            ID,
            channels[1].path,
            "the Pod takes the IMEX channels of two ComputeDomains",
            f"the Pod uses the channels of {listing(sorted(names))}, and a node has one channel: "
            "the Pod stays Pending",
            "Use the channel of one ComputeDomain",
            "warn",
        )
    elif names:
        yield from _beside_channel(pod, channels[0].path, context, nodes)
    else:
        yield from _beside_host(pod, context, nodes)


def _selected(pod: Pod, context: Context, nodes: NodeIndex) -> NodeSet:
    return selected_nodes(pod, context.requested_pools, context, nodes)


def _beside_channel(pod: Pod, path: str, context: Context, nodes: NodeIndex) -> Iterator[Finding]:
    selected = _selected(pod, context, nodes)
    for name, count in needed_devices(pod, context).items():
        offers = nodes.offers(name, selected & nodes.offering(name, count))
        left = min(offers, default=count) - count
        if left > 0:
            yield Finding(
                ID,
                path,
                TAKES_CHANNEL,
                f"the Pod takes the only IMEX channel of its node, and requests {count} of "
                f"{left + count} {name}: no other Pod with a channel can use the other {left}",
                f"Request {left + count} {name}, so that fewer Pods use whole nodes, or remove the "
                "claim if the Pod needs no memory of GPUs on other nodes",
                "warn",
            )


def _beside_host(pod: Pod, context: Context, nodes: NodeIndex) -> Iterator[Finding]:
    """Yield a finding if the Pod leaves too little CPU or memory on the node that suits it best."""
    needed = needed_devices(pod, context)
    cpu, memory = host_peaks(pod.spec)
    taken = Room(
        cpu + claimed_of_host(pod, "cpu", context), memory + claimed_of_host(pod, "memory", context)
    )
    found: Finding | None = None
    for name, count in needed.items():
        # For speed: three fourths of the smallest node leave enough on every node.
        smallest = nodes.smallest_room(name)
        most = (LEAST - 1) / LEAST
        if taken.cpu <= smallest.cpu * most and taken.memory <= smallest.memory * most:
            return
        if can_be_added(pod, context.requested_pools, needed, context.facts):
            return
        selected = _selected(pod, context, nodes) & nodes.offering(name, count)
        fitting = [
            (_stranded(shape, count, taken), shape)
            for shape in nodes.shapes(name, selected)
            if all(n <= room or not room for room, n in zip(shape.room, taken, strict=True))
        ]
        if not fitting or not min(fitting)[0][0]:
            return
        (left, which), shape = min(fitting)
        host, share = _HOST[which], shape.room[which] * count // shape.devices
        requested, room = shown_host(host, taken[which]), shown_host(host, shape.room[which])
        found = found or Finding(
            ID,
            largest_request(pod, host),
            f"the Pod takes the {host} that other devices of its node need",
            f"the Pod requests {requested} of a node that has {room}, and {count} of "
            f"{shape.devices} {name}: what remains is too little for {left} of the other "
            f"{shape.devices - count}",
            f"Request {shown_host(host, share)} or less in all, or {shape.devices} {name}",
            "warn",
        )
    if found:
        yield found


def _stranded(shape: Shape, count: int, taken: Room) -> tuple[int, int]:
    """Return how many other devices of the node are useless, and for lack of what.

    An unknown room has enough for all.
    """
    others = shape.devices - count
    usable = [
        (room - n) * shape.devices * LEAST // room if room else others
        for room, n in zip(shape.room, taken, strict=True)
    ]
    least = min(usable)
    return max(0, others - least), usable.index(least)
