"""ResourceClaims and ResourceClaimTemplates as facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from policies.kubernetes.core_v1 import PodSpec
from policies.kubernetes.quantity import NANOS

IMPLICIT_RESOURCE_PREFIX = "deviceclass.resource.kubernetes.io/"
"""A container can request a DeviceClass under this name in its resources (KEP-5004)."""


class HostShare(NamedTuple):
    """What an allocated device takes of a resource of its node, in nanos.

    Source: ``resource.k8s.io/v1`` ``NodeAllocatableResource``, of Kubernetes 1.37.
    """

    resource: str
    per_device: int = 0
    """``deviceMultiplier``, and the overhead for each Pod."""
    per_container: int = 0
    """The overhead for each container that uses the claim."""
    capacity: str = ""
    """The capacity whose consumption counts, ``multiplier`` for each unit."""
    multiplier: int = 0
    consumed: int = 0
    """The capacity that a request takes if it names no amount."""


HostShares: TypeAlias = tuple[HostShare, ...]
"""The host shares of a device."""


class Ask(NamedTuple):
    """One alternative of a request, or the allocated one: a DeviceClass, and how much of it."""

    device_class: str
    number: int = 1
    """Of ``allocationMode: All``, the least."""
    capacity: tuple[tuple[str, int], ...] = ()
    is_all: bool = False
    """Whether it is for all devices of a node."""
    is_admin: bool = False
    """Whether it is for devices that may be allocated to others: ``adminAccess``."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The device classes that a ResourceClaim or a ResourceClaimTemplate requests.

    One entry per request: the device classes that satisfy it (``exactly`` names one,
    ``firstAvailable`` several). Source: ``resource.k8s.io/v1`` ``DeviceRequest``.
    """

    requests: tuple[frozenset[str], ...]
    tolerates_taints: bool = False
    """Whether a request may get a device with a taint: ``tolerations``."""
    shares_by_mps: bool = False
    """Whether its configuration starts an MPS server for the processes that use it."""
    names: tuple[str, ...] = ()
    """The names of the requests; without any, a container cannot choose one."""
    asks: tuple[tuple[Ask, ...], ...] = field(default=(), compare=False)
    """The alternatives of each request: the allocated one, if the claim has devices."""
    nodes: PodSpec | None = None
    """The node selection of the devices that are allocated to the claim; ``None`` without any."""
    problem: str = field(default="", compare=False)
    """Of a manifest, why API servers do not accept the claim as it is written."""
    cure: str = field(default="", compare=False)

    @property
    def admin_access(self) -> bool:
        """Whether a request is for devices that may be allocated to others."""
        return any(ask.is_admin for asks in self.asks for ask in asks)

    @property
    def is_for_several(self) -> bool:
        """Whether a request, in each of its alternatives, is for more than one device."""
        return any(all(ask.is_all or ask.number > 1 for ask in asks) for asks in self.asks)


def least_of_host(
    claim: Claim, resource: str, containers: int, known: Mapping[str, Iterable[HostShares]]
) -> int:
    """Return how much of a resource of its node a claim takes at least, in nanos.

    ``known`` has the host shares of the devices of each class, ``containers`` is the number of
    containers that use the claim. Source: ``addDeviceMapping`` and ``addDeviceOverhead`` in
    ``k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources``.
    """

    def taken(ask: Ask, shares: HostShares) -> int:
        asked = dict(ask.capacity)
        return ask.number * sum(
            each.per_device
            + each.per_container * containers
            + each.multiplier * asked.get(each.capacity, each.consumed) // NANOS
            for each in shares
            if each.resource == resource
        )

    return sum(
        min(
            (taken(ask, shares) for ask in asks for shares in known.get(ask.device_class) or [()]),
            default=0,
        )
        for asks in claim.asks
    )


def implicit_resource(device_class: str) -> str:
    """Return the resource name by which a container can request the DeviceClass."""
    return f"{IMPLICIT_RESOURCE_PREFIX}{device_class}"


def class_of_resource(name: str) -> str:
    """Return the DeviceClass of an implicit resource name; empty for another name."""
    prefix = IMPLICIT_RESOURCE_PREFIX
    return name.removeprefix(prefix) if name.startswith(prefix) else ""
