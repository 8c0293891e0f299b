"""Reads ResourceClaims and ResourceClaimTemplates.

Source: ``resource.k8s.io/v1`` (``devices.requests[].exactly`` and ``.firstAvailable[]``); in
``v1beta1`` and ``v1alpha3``, a request names its ``deviceClassName`` itself.
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


def read_claim(spec: Any, status: Any = None) -> Claim:
    """Return what a ResourceClaim requests and has; entries that are no requests are left out."""
    allocation = mapping(status).get("allocation")
    results = _list(mapping(mapping(allocation).get("devices")).get("results"))
    allocated = Counter(str(result.get("request")) for result in results)
    requests, names, asks, tolerates = [], [], [], False
    for request in _list(mapping(mapping(spec).get("devices")).get("requests")):
        name, subrequests = str(request.get("name") or ""), _list(request.get("firstAvailable"))
        alternatives = subrequests or [mapping(request.get("exactly")) or request]
        classes = {a.get("deviceClassName") for a in alternatives}
        requests.append(frozenset(each for each in classes if isinstance(each, str)))
        names.append(name)
        tolerates |= any(a.get("tolerations") for a in alternatives)
        own = [*map(_ask, alternatives)]
        if results:
            paths = [f"{name}/{a.get('name')}" if subrequests else name for a in alternatives]
            counts = map(allocated.__getitem__, paths)
            own = [
                ask._replace(number=count, is_all=False)
                for ask, count in zip(own, counts, strict=True)
                if count
            ]
        asks.append(tuple(own))
    configs = _list(mapping(mapping(spec).get("devices")).get("config"))
    return Claim(
        tuple(requests),
        tolerates,
        any(map(_is_mps, configs)),
        tuple(names),
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
    return Ask(
        str(request.get("deviceClassName")),
        count if isinstance(count, int) else 1,
        tuple(capacity),
        request.get("allocationMode") == "All",
        request.get("adminAccess") is True,
    )


def _is_mps(config: JSONObject) -> bool:
    """Source: kubernetes-sigs/dra-driver-nvidia-gpu, ``api/nvidia.com/resource/v1beta1``."""
    parameters = mapping(mapping(config.get("opaque")).get("parameters"))
    return mapping(parameters.get("sharing")).get("strategy") == "MPS"


def _list(value: Any) -> list[JSONObject]:
    return [item for _, item in mappings(value)]
