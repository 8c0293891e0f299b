"""Reads ResourceClaims and ResourceClaimTemplates.

Source: ``resource.k8s.io/v1`` (``devices.requests[].exactly`` and ``.firstAvailable[]``); in
``v1beta1`` and before, a request names its ``deviceClassName`` itself.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import msgspec

from policies.kubernetes.claims import Ask, Claim
from policies.kubernetes.core_v1 import Affinity, NodeAffinity, NodeSelector, PodSpec
from policies.kubernetes.objects import JSONObject, mapping, mappings
from policies.kubernetes.quantity import InvalidQuantityError, parse_quantity

GROUP = "resource.k8s.io"


def read_claim(spec: Any, status: Any = None) -> Claim:
    """Return what a ResourceClaim requests and has; entries that are no requests are left out."""
    requests, names, asks = [], [], []
    admin_access = is_for_several = tolerates = False
    class_of: dict[str, str] = {}
    requested: Counter[str] = Counter()
    for request in _list(mapping(mapping(spec).get("devices")).get("requests")):
        name, subrequests = str(request.get("name") or ""), _list(request.get("firstAvailable"))
        alternatives = subrequests or [mapping(request.get("exactly")) or request]
        classes = {a.get("deviceClassName") for a in alternatives}
        first, count = alternatives[0], alternatives[0].get("count", 1)
        # Alternatives (DeviceSubRequest) do not have the field.
        is_admin = first.get("adminAccess") is True
        admin_access |= is_admin
        tolerates |= any(a.get("tolerations") for a in alternatives)
        is_for_several |= all(map(_is_for_several, alternatives))
        requests.append(frozenset(each for each in classes if isinstance(each, str)))
        names.append(name)
        asks.append(tuple(map(_ask, alternatives)))
        for each in alternatives:
            path = f"{name}/{each.get('name')}" if subrequests else name
            class_of[path] = str(each.get("deviceClassName"))
        if isinstance(count, int) and not is_admin:
            requested[str(first.get("deviceClassName"))] += count
    allocation = mapping(status).get("allocation")
    results = _list(mapping(mapping(allocation).get("devices")).get("results"))
    allocated = Counter(
        class_of[path]
        for result in results
        if (path := str(result.get("request"))) in class_of
        and result.get("adminAccess") is not True
    )
    return Claim(
        tuple(requests),
        admin_access,
        is_for_several,
        tolerates,
        any(map(_is_mps, _list(mapping(mapping(spec).get("devices")).get("config")))),
        tuple(names),
        tuple(sorted((allocated if results else requested).items())),
        tuple(asks),
        _nodes(allocation),
    )


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


def _ask(request: JSONObject) -> Ask:
    count, asked = request.get("count"), mapping(mapping(request.get("capacity")).get("requests"))
    capacity = []
    for name, amount in asked.items():
        with suppress(InvalidQuantityError):
            capacity.append((name, parse_quantity(amount)))
    device_class = str(request.get("deviceClassName"))
    return Ask(device_class, count if isinstance(count, int) else 1, tuple(capacity))


def _is_mps(config: JSONObject) -> bool:
    """Source: kubernetes-sigs/dra-driver-nvidia-gpu, ``api/nvidia.com/resource/v1beta1``."""
    parameters = mapping(mapping(config.get("opaque")).get("parameters"))
    return mapping(parameters.get("sharing")).get("strategy") == "MPS"


def _is_for_several(request: JSONObject) -> bool:
    count = request.get("count")
    return request.get("allocationMode") == "All" or (isinstance(count, int) and count > 1)


def _list(value: Any) -> list[JSONObject]:
    return [item for _, item in mappings(value)]
