"""Objects that tell who reads pod templates as they are written: autoscalers, and Kueue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from policies.kubernetes.core_v1 import PodSpec
from policies.kubernetes.objects import (
    JSONObject,
    MalformedObjectError,
    ObjectKey,
    mapping,
    mappings,
)
from policies.kubernetes.paths import text_at
from policies.kubernetes.readers import AUTOSCALERS, TemplateReader
from policies.kubernetes.templates import group_kind
from policies.kubernetes.workload import convert

Placed = Iterable[tuple[str, JSONObject]]
"""Objects, each with its namespace."""


def readers_among(objects: Placed) -> dict[ObjectKey, TemplateReader]:
    """Return the autoscalers that simulate PodTemplates, by namespace and name."""
    return {
        (namespace, name): AUTOSCALERS[kind]
        for namespace, obj in objects
        for group, kind in (group_kind(obj),)
        if group == "autoscaling.x-k8s.io" and kind in AUTOSCALERS
        for name in _templates(mapping(obj.get("spec")))
    }


def _templates(spec: JSONObject) -> Iterator[str]:
    places: list[Any] = [spec, *(each for _, each in mappings(spec.get("podSets")))]
    for place in places:
        if name := text_at(place, "podTemplateRef", "name"):
            yield name


def topologies_among(objects: Placed) -> tuple[PodSpec, ...]:
    """Return what Kueue's flavors with a topology add to Pods: the tolerations."""
    found = []
    for _, obj in objects:
        if group_kind(obj) == ("kueue.x-k8s.io", "ResourceFlavor"):
            spec = mapping(obj.get("spec"))
            if text_at(spec, "topologyName"):
                with suppress(MalformedObjectError):
                    found.append(convert({"tolerations": spec.get("tolerations")}, PodSpec))
    return tuple(found)
