"""What other objects say of the Pods of a workload: with how many they start, and their quota.

Sources: ``k8s.io/api/scheduling`` v1alpha3 and v1beta1 (``PodGroup``, ``Workload``),
kubernetes-sigs/scheduler-plugins, ``apis/scheduling/v1alpha1`` (``PodGroup``), volcano.sh/apis,
``pkg/apis/scheduling/v1beta1`` (``PodGroup``), and ``k8s.io/api/core/v1`` (``ResourceQuota``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from policies.kubernetes.claims import implicit_resource
from policies.kubernetes.objects import JSONObject, ObjectKey, mapping, mappings
from policies.kubernetes.paths import descend, text_at
from policies.kubernetes.quantity import NANOS, InvalidQuantityError, parse_quantity
from webhook.kube.collection import Collection

QUOTAS = Collection("resourcequotas", "/api/v1/resourcequotas", JSONObject)
GROUPS = ("scheduling.k8s.io", "scheduling.x-k8s.io", "scheduling.volcano.sh")
KINDS = ("PodGroup", "Workload")
"""The kinds of these API groups that say with how many Pods a gang starts."""

OF_CLASS = ".deviceclass.resource.k8s.io/devices"
"""The end of the name under which a quota counts the devices of a DeviceClass."""

_OF_REQUESTS = "requests."
_IN_POLICY = ("schedulingPolicy", "gang", "minCount")

Gangs = dict[ObjectKey, int]
Quotas = dict[str, dict[str, int]]


def read_gangs(objects: Iterable[tuple[str, JSONObject]]) -> tuple[Gangs, Quotas]:
    """Return the fields ``gangs`` and ``quotas`` of ``Facts``: what objects in namespaces say.

    Other kinds are passed over, and so are quotas for some of the Pods only.
    """
    gangs: Gangs = {}
    quotas: Quotas = {}
    for namespace, obj in objects:
        spec, kind = mapping(obj.get("spec")), obj.get("kind")
        if kind == "ResourceQuota" and not (spec.get("scopes") or spec.get("scopeSelector")):
            own = quotas.setdefault(namespace, {})
            for name, most in _devices(spec):
                own[name] = min(most, own.get(name, most))
        elif str(obj.get("apiVersion")).partition("/")[0] in GROUPS and kind in KINDS:
            key, fewest = _fewest(obj, spec)
            if type(fewest) is int:
                gangs[namespace, key] = fewest
    return gangs, quotas


def _fewest(obj: JSONObject, spec: JSONObject) -> tuple[str, Any]:
    """Return the name of the PodGroup, or what a Workload is about, and its number of Pods."""
    if obj["kind"] == "PodGroup":
        return text_at(obj, "metadata", "name"), spec.get("minMember", descend(spec, _IN_POLICY))
    groups = mappings(spec.get("podGroupTemplates"))
    about = f"{text_at(spec, 'controllerRef', 'kind')}/{text_at(spec, 'controllerRef', 'name')}"
    # With several groups, each is a part of the object's Pods.
    return about, descend(groups[0][1], _IN_POLICY) if len(groups) == 1 else None


def _devices(spec: JSONObject) -> Iterable[tuple[str, int]]:
    for name, quantity in mapping(spec.get("hard")).items():
        device_class = name.removesuffix(OF_CLASS)
        if device_class != name:
            resource = implicit_resource(device_class)
        elif name.startswith(_OF_REQUESTS) and "/" in name:
            resource = name.removeprefix(_OF_REQUESTS)
        else:
            continue
        try:
            yield resource, parse_quantity(quantity) // NANOS
        except InvalidQuantityError:
            continue
