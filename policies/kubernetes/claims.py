"""ResourceClaims and ResourceClaimTemplates as facts."""

from __future__ import annotations

from dataclasses import dataclass, field

from policies.kubernetes.core_v1 import PodSpec

IMPLICIT_RESOURCE_PREFIX = "deviceclass.resource.kubernetes.io/"
"""A container can request a DeviceClass under this name in its resources (KEP-5004)."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The device classes that a ResourceClaim or a ResourceClaimTemplate requests.

    One entry per request: the device classes that satisfy it (``exactly`` names one,
    ``firstAvailable`` several). Source: ``resource.k8s.io/v1`` ``DeviceRequest``.
    """

    requests: tuple[frozenset[str], ...]
    admin_access: bool = False
    """Whether a request is for devices that may be allocated to others: ``adminAccess``."""
    is_for_several: bool = False
    """Whether a request, in each of its alternatives, is for more than one device."""
    tolerates_taints: bool = False
    """Whether a request may get a device with a taint: ``tolerations``."""
    names: tuple[str, ...] = ()
    """The names of the requests; without any, a container cannot choose one."""
    devices: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    """How many devices of each class are allocated, or else requested: of ``firstAvailable``, those
    of the first alternative. Those with ``adminAccess`` do not count."""
    nodes: PodSpec | None = None
    """The node selection of the devices that are allocated to the claim; ``None`` without any."""


def implicit_resource(device_class: str) -> str:
    """Return the resource name by which a container can request the DeviceClass."""
    return f"{IMPLICIT_RESOURCE_PREFIX}{device_class}"


def class_of_resource(name: str) -> str:
    """Return the DeviceClass of an implicit resource name; empty for another name."""
    prefix = IMPLICIT_RESOURCE_PREFIX
    return name.removeprefix(prefix) if name.startswith(prefix) else ""
