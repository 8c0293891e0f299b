"""ResourceClaims and ResourceClaimTemplates as facts.

Source: ``resource.k8s.io/v1`` (``devices.requests[].exactly`` and ``.firstAvailable[]``); in
``v1beta1`` and before, a request names its ``deviceClassName`` itself.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from policies.kubernetes.core_v1 import Affinity, NodeAffinity, NodeSelector, PodSpec
from policies.kubernetes.objects import JSONObject, mapping, mappings

GROUP = "resource.k8s.io"
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


def read_claim(spec: Any, status: Any = None) -> Claim:
    """Return what a ResourceClaim requests and has; entries that are no requests are left out."""
    requests, names = [], []
    admin_access = is_for_several = tolerates = False
    for request in _list(mapping(mapping(spec).get("devices")).get("requests")):
        alternatives = _list(request.get("firstAvailable"))
        alternatives = alternatives or [mapping(request.get("exactly")) or request]
        classes = {a.get("deviceClassName") for a in alternatives}
        # Alternatives (DeviceSubRequest) do not have the field.
        admin_access |= alternatives[0].get("adminAccess") is True
        tolerates |= any(a.get("tolerations") for a in alternatives)
        is_for_several |= all(map(_is_for_several, alternatives))
        requests.append(frozenset(name for name in classes if isinstance(name, str)))
        names.append(str(request.get("name") or ""))
    allocation = mapping(status).get("allocation")
    return Claim(
        tuple(requests),
        admin_access,
        is_for_several,
        tolerates,
        tuple(names),
        _devices(mapping(mapping(spec).get("devices")), allocation),
        _nodes(allocation),
    )


def _devices(devices: JSONObject, allocation: Any) -> tuple[tuple[str, int], ...]:
    """Return the number of devices by class: those of an allocation, or the requested ones."""
    classes: dict[str, str] = {}
    requested: Counter[str] = Counter()
    for request in _list(devices.get("requests")):
        name, alternatives = request.get("name"), _list(request.get("firstAvailable"))
        exactly = mapping(request.get("exactly")) or request
        first = alternatives[0] if alternatives else exactly
        for each in alternatives or [exactly]:
            path = f"{name}/{each.get('name')}" if alternatives else str(name)
            classes[path] = str(each.get("deviceClassName"))
        count = first.get("count", 1)
        if first.get("adminAccess") is not True and isinstance(count, int):
            requested[str(first.get("deviceClassName"))] += count
    results = _list(mapping(mapping(allocation).get("devices")).get("results"))
    allocated = Counter(
        classes[str(result.get("request"))]
        for result in results
        if str(result.get("request")) in classes and result.get("adminAccess") is not True
    )
    return tuple(sorted((allocated if results else requested).items()))


def _nodes(allocation: Any) -> PodSpec | None:
    """Return the selection of the nodes on which an allocation can be used: without one, of all."""
    if not isinstance(allocation, dict):
        return None
    if allocation.get("nodeSelector") is None:
        return PodSpec()
    try:
        selector = msgspec.convert(allocation["nodeSelector"], NodeSelector)
    except msgspec.ValidationError:
        return None
    return PodSpec(affinity=Affinity(NodeAffinity(selector)))


def _is_for_several(request: JSONObject) -> bool:
    count = request.get("count")
    return request.get("allocationMode") == "All" or (isinstance(count, int) and count > 1)


def _list(value: Any) -> list[JSONObject]:
    return [item for _, item in mappings(value)]
