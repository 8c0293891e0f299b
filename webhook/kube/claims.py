"""Reads ResourceClaims and ResourceClaimTemplates.

Source: ``resource.k8s.io/v1`` (``devices.requests[].exactly`` and ``.firstAvailable[]``); in
``v1beta1`` and before, a request names its ``deviceClassName`` itself.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from policies.kubernetes.claims import Claim
from policies.kubernetes.core_v1 import Affinity, NodeAffinity, NodeSelector, PodSpec
from policies.kubernetes.objects import JSONObject, mapping, mappings

GROUP = "resource.k8s.io"


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
