"""LimitRanges: the devices that containers without a request of their own get by default.

The admission plugin ``LimitRanger`` changes Pods before webhooks see them. Source:
``SetDefaults_LimitRangeItem`` in ``k8s.io/kubernetes/pkg/apis/core/v1/defaults.go``.
"""

from __future__ import annotations

from collections.abc import Iterable

from policies.kubernetes.core_v1 import ResourceRequirements
from policies.kubernetes.objects import JSONObject, mapping, mappings
from policies.kubernetes.quantity import InvalidQuantityError, parse_quantity
from webhook.kube.collection import Collection

LIMIT_RANGES = Collection("limitranges", "/api/v1/limitranges", JSONObject)

Defaults = dict[str, ResourceRequirements]


def defaults_among(objects: Iterable[tuple[str, JSONObject]]) -> Defaults:
    """Return the field ``defaults`` of ``Facts``: by namespace, the devices that containers get."""
    found: Defaults = {}
    for namespace, obj in objects:
        if obj.get("kind") != "LimitRange" or obj.get("apiVersion", "v1") != "v1":
            continue
        for _, item in mappings(mapping(obj.get("spec")).get("limits")):
            if item.get("type") == "Container":
                limits = {**_devices(item, "max"), **_devices(item, "default")}
                requests = {**limits, **_devices(item, "defaultRequest")}
                if limits:
                    known = found.get(namespace) or ResourceRequirements({}, {})
                    found[namespace] = ResourceRequirements(
                        {**limits, **(known.limits or {})}, {**requests, **(known.requests or {})}
                    )
    return found


def _devices(item: JSONObject, field: str) -> JSONObject:
    found = {}
    for name, quantity in mapping(item.get(field)).items():
        try:
            if "/" in name and parse_quantity(quantity) > 0:
                found[name] = quantity
        except InvalidQuantityError:
            continue
    return found
