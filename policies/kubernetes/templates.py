"""Pod templates in objects, and the parts of an object whose Pods cannot be judged before creation.

The built-in workloads have their template in a known place. Custom resources are searched by
structure, so that operators need no entry here: a mapping that lists containers is a Pod's spec.
Other fields of a Pod (tolerations, resources, ...) in a custom resource mean that an operator makes
Pods from them in a way of its own: these Pods are judged when they are created. They are of
interest only if they name a device, a label or a taint of a pool, or tolerate every taint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec.structs import fields

from policies.kubernetes.core_v1 import PodSpec
from policies.kubernetes.kinds import CORE_WORKLOADS, WELL_KNOWN
from policies.kubernetes.objects import (
    MAX_DEPTH,
    JSONObject,
    MalformedObjectError,
    OversizedObjectError,
    mapping,
    mappings,
)
from policies.kubernetes.paths import Path, descend
from policies.kubernetes.template import Template, Unjudged, names_device

MOST_VALUES = 20_000
"""How many values a custom resource may have; the largest of the ecosystem's has 1,100."""

_POD_SPEC_FIELDS = frozenset(field.encode_name for field in fields(PodSpec))
_NOT_SEARCHED = frozenset({"apiVersion", "kind", "metadata", "status"})
_FRAGMENT = "gpufence does not know how its operator creates Pods"
_DEVICES = "gpufence does not know which Pods get these devices"
INCOMPLETE = "an operator completes its containers"
_MAY_GET_DEVICES = "its operator may add devices to its containers"
_TEXT = "its text holds values for Pods"
_LABELS = frozenset({"annotations", "labels", "matchLabels", "nodeLabels"})
"""Fields whose keys may have the names of devices: nvidia.com/gpu.count is a label of nodes."""
_DEVICE_COUNT = re.compile(r"gpus?(Count|Num|Number|Per[A-Z]\w*)?|num(Of)?G(pu|PU)s?")
"""Names of fields with a number of devices: ``gpus``, ``gpuCount``, ``numGpus``."""


_KNOWN_GROUPS = frozenset(
    {*(group for group, _ in CORE_WORKLOADS), *(workloads.group for workloads in WELL_KNOWN)}
)
_VERSIONS = {"": "v1", "apps": "apps/v1", "batch": "batch/v1"}
_GROUPS_OF_WORKLOADS = {"Pod": ""} | {
    kind: group for group, kind in CORE_WORKLOADS if group in _VERSIONS
}


_KINDS_IN_LOWER_CASE = {kind.lower(): kind for kind in _GROUPS_OF_WORKLOADS}


class Found(NamedTuple):
    """The pod templates of an object, and the parts whose Pods cannot be judged from it."""

    templates: tuple[Template, ...] = ()
    unjudged: tuple[Unjudged, ...] = ()

    @property
    def paths(self) -> list[Path]:
        """The paths of all of them."""
        return [
            *(each.spec_path for each in self.templates),
            *(each.path for each in self.unjudged),
        ]


def find(obj: JSONObject, search: Search | None = None) -> Found:
    """Return every pod template of an object, in the order of the object; a Pod is its own.

    Raises:
        MalformedObjectError: the API has the kind in another group.
        OversizedObjectError: a custom resource has too many values.
    """
    key = group_kind(obj)
    if key == ("", "Pod"):
        return Found((Template(obj, ("spec",), "Pod"),))
    if key not in CORE_WORKLOADS:
        kind = _KINDS_IN_LOWER_CASE.get(key[1].lower(), key[1])
        if key[0] in _VERSIONS and kind != key[1]:
            raise MalformedObjectError("kind", f"is {key[1]}; did you mean {kind}?")
        if key[0] in _VERSIONS and key[1] in _GROUPS_OF_WORKLOADS:
            meant = _VERSIONS[_GROUPS_OF_WORKLOADS[key[1]]]
            raise MalformedObjectError(
                "apiVersion",
                f"is {obj['apiVersion']}, which has no kind {key[1]}; did you mean {meant}?",
            )
        _check_values(obj)
    parts = list((search or Search()).in_object(obj, (), _kind(obj, "")))
    if any(isinstance(part, Unjudged) and part.reason is _DEVICES for part in parts):
        parts = [_without_doubt(part) for part in parts]
    whole = tuple(part for part in parts if isinstance(part, Template))
    unjudged = (part for part in parts if isinstance(part, Unjudged))
    return Found(whole, tuple(unjudged))


def _check_values(obj: JSONObject) -> None:
    count, level = 1, [value for field, value in obj.items() if field not in _NOT_SEARCHED]
    while level:
        count += len(level)
        if count > MOST_VALUES:
            raise OversizedObjectError(
                "", f"it has more than {MOST_VALUES:,} values, which is the limit"
            )
        inner = [value for value in level if isinstance(value, (dict, list))]
        level = [
            v for value in inner for v in (value.values() if isinstance(value, dict) else value)
        ]


def is_core_workload(obj: JSONObject) -> bool:
    """Return whether the API server validates the object's pod template itself, before webhooks."""
    return group_kind(obj) in CORE_WORKLOADS


def has_known_fields(obj: JSONObject) -> bool:
    """Return whether the pod templates of the object have the fields of a Pod, as far as is known.

    Of other custom resources, only the names of the fields tell.
    """
    group, kind = group_kind(obj)
    return group in _KNOWN_GROUPS or (group, kind) == ("", "Pod")


def foreign_field(template: Template) -> str:
    """Return what a container's resources hold that those of a Pod cannot; empty if nothing."""
    for kind in ("containers", "initContainers"):
        for index, container in mappings(template.raw["spec"].get(kind)):
            for name in mapping(container.get("resources")):
                if name not in ("limits", "requests", "claims"):
                    return template.at(f"spec.{kind}[{index}].resources.{name}")
    return ""


def group_kind(obj: Mapping[str, Any]) -> tuple[str, str]:
    """Return API group and kind."""
    group, slash, _ = str(obj.get("apiVersion") or "").partition("/")
    return (group if slash else "", str(obj.get("kind")))


class Search:
    """Finds the pod templates below an object, by their structure."""

    def in_object(self, obj: JSONObject, at: Path, kind: str) -> Iterator[Template | Unjudged]:
        """Yield the templates of an object at a path of another one, or of the outermost one."""
        key = group_kind(obj)
        if path := CORE_WORKLOADS.get(key):
            template = descend(obj, path)
            # Patches in files leave out the template, or its spec. Webhooks reject such an object.
            if isinstance(template, dict) and template.get("spec") is not None:
                yield Template(template, (*at, *path, "spec"), kind)
        elif at:
            yield from self._in_mapping(obj, at, kind)
        elif "." in key[0]:
            # The group of a custom resource has a dot. Most kinds have a spec, Kaito's do not.
            for field, value in obj.items():
                if field not in _NOT_SEARCHED:
                    yield from self.below(value, (field,), kind)

    def below(self, value: Any, path: Path, kind: str) -> Iterator[Template | Unjudged]:
        """Yield the templates at and below ``value``, and texts of several lines."""
        if isinstance(value, str):
            if "\n" in value:
                yield Unjudged(path, _TEXT, value)
            return
        if len(path) > MAX_DEPTH:
            if isinstance(value, dict | list) and value:
                yield Unjudged(path, f"it is more than {MAX_DEPTH} levels deep")
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from self.below(item, (*path, index), kind)
        elif isinstance(value, dict):
            if is_object(value):
                yield from self.in_object(value, path, _kind(value, kind))
            else:
                yield from self._in_mapping(value, path, kind)

    def _in_mapping(
        self, value: JSONObject, path: Path, kind: str
    ) -> Iterator[Template | Unjudged]:
        spec = value.get("spec")
        if isinstance(spec, dict) and _lists_containers(spec):
            yield _judgeable(Template(value, (*path, "spec"), kind))
        elif _lists_containers(value):
            yield _judgeable(Template({"spec": value}, path, kind))
            # An inline spec can contain others: KServe's workerSpec.
            for key, item in value.items():
                if key not in _POD_SPEC_FIELDS:
                    yield from self.below(item, (*path, key), kind)
        else:
            yield from _fragments(value, path)
            for key, item in value.items():
                yield from self.below(item, (*path, key), kind)


def _judgeable(template: Template) -> Template | Unjudged:
    """Return the template if the author wrote what its containers run, or which devices they use.

    An operator that adds the images of containers may add devices, too.
    """
    spec = template.raw["spec"]
    if has_devices(template) or all("image" in container for container in spec["containers"]):
        return template
    return Unjudged(template.spec_path, INCOMPLETE, spec)


def _without_doubt(part: Template | Unjudged) -> Template | Unjudged:
    """Return a template only if its containers request devices."""
    if isinstance(part, Unjudged) or has_devices(part):
        return part
    return Unjudged(part.spec_path, _MAY_GET_DEVICES)


def has_devices(template: Template) -> bool:
    spec = template.raw["spec"]
    return any(
        names_device(container)
        for kind in ("containers", "initContainers")
        for _, container in mappings(spec.get(kind))
    )


def _kind(obj: JSONObject, outer: str) -> str:
    """Return the kind of a custom resource, or of an object that one embeds.

    Rules trust the kinds Pod and DaemonSet: other groups' kinds of that name get another one. An
    embedded Pod is made by the object around it.
    """
    group, kind = group_kind(obj)
    if (group, kind) == ("", "Pod"):
        return outer
    if kind in ("Pod", "DaemonSet") and (group, kind) not in CORE_WORKLOADS:
        return f"{kind}.{group}"
    return kind


def is_object(value: JSONObject) -> bool:
    """Return whether a whole object is embedded here, as in an AppWrapper's components."""
    return isinstance(value.get("kind"), str) and isinstance(value.get("apiVersion"), str)


def _lists_containers(spec: JSONObject) -> bool:
    """Return whether the mapping is a Pod's spec. Operators may add the containers' images."""
    containers = spec.get("containers")
    return (
        isinstance(containers, list)
        and bool(containers)
        and all(
            isinstance(item, dict) and ("image" in item or isinstance(item.get("name"), str))
            for item in containers
        )
    )


def _fragments(value: JSONObject, path: Path) -> Iterator[Unjudged]:
    """Yield what only a Pod, or a description of one, has, and numbers of devices."""
    if path[-1] in _LABELS:
        return
    resources = {*mapping(value.get("limits")), *mapping(value.get("requests"))}
    devices = [name for name in resources if "/" in name or name == "gpu"]
    if devices or isinstance(value.get("deviceClassName"), str):
        yield Unjudged(path, _DEVICES)
    if path[-1:] == ("limits",) or path[-1:] == ("requests",):
        return
    for field, item in value.items():
        if _counts_devices(field, item):
            yield Unjudged((*path, field), _DEVICES)
        elif field == "resourceClaims" and mappings(item):
            yield Unjudged((*path, field), _FRAGMENT)
        elif _is_placement(field, item):
            yield Unjudged((*path, field), _FRAGMENT, {field: item})


def _is_placement(field: str, item: Any) -> bool:
    if field == "tolerations":
        return bool(mappings(item))
    if field == "affinity":
        return bool(mapping(mapping(item).get("nodeAffinity")))
    labels = mapping(item) if field == "nodeSelector" else {}
    return bool(labels) and all(isinstance(label, str) for label in labels.values())


def _counts_devices(field: str, item: Any) -> bool:
    """Return whether a field of an operator requests devices by a name of its own."""
    if field == "deviceName":
        return isinstance(item, str) and "/" in item and not item.startswith("/")
    if field == "accelerators" and isinstance(item, dict):
        return _is_count(item.get("count"))
    domain, slash, name = field.rpartition("/")
    if slash:
        return "." in domain and name.startswith("gpu") and _is_count(item)
    return bool(_DEVICE_COUNT.fullmatch(field)) and _is_count(item)


def _is_count(item: Any) -> bool:
    text = str(item) if isinstance(item, int | str) and not isinstance(item, bool) else ""
    return text.isdecimal() and text.strip("0") != ""
