"""The copy that mutations work on: what they may write to is new, all else is shared.

A mutation may set keys of a Pod's spec, of its containers and their resources, and of the required
node affinity down to its terms. Whatever stands deeper it replaces and never changes in place. So
what is large, and nobody's business (managed fields, volumes, environments), costs nothing, and
what was changed is found where the two objects are not the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from policies.kubernetes.objects import JSONObject
from policies.kubernetes.pod import CONTAINER_KINDS
from policies.kubernetes.scheduling import REQUIRED
from policies.kubernetes.template import Template


def working_copy(obj: JSONObject, found: Iterable[Template]) -> JSONObject:
    """Return a copy of an object in whose pod templates, ``found`` in it, mutations may write."""
    # What a controller composes of pieces stands in several places.
    if any(template.holder is not None or not template.editable for template in found):
        whole: JSONObject = clone(obj)
        return whole
    copy = dict(obj)
    for template in found:
        *parents, last = template.spec_path
        place: Any = copy
        for step in parents:
            place[step] = place[step].copy()
            place = place[step]
        place[last] = fork(place[last])
    return copy


def clone(value: Any) -> Any:
    """Return a copy of parsed JSON that shares nothing, not even with itself."""
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value


def fork(spec: JSONObject) -> JSONObject:
    """Return a copy of a Pod's spec in which mutations may write."""
    copy = dict(spec)
    for kind in CONTAINER_KINDS:
        if containers := spec.get(kind):
            copy[kind] = [_fork_container(container) for container in containers]
    if affinity := spec.get("affinity"):
        copy["affinity"] = _fork_affinity(affinity)
    return copy


def _fork_container(container: JSONObject) -> JSONObject:
    copy = dict(container)
    if resources := container.get("resources"):
        copy["resources"] = dict(resources)
    return copy


def _fork_affinity(affinity: JSONObject) -> JSONObject:
    copy = dict(affinity)
    if node_affinity := affinity.get("nodeAffinity"):
        copy["nodeAffinity"] = node_affinity = dict(node_affinity)
        if required := node_affinity.get(REQUIRED):
            node_affinity[REQUIRED] = required = dict(required)
            if terms := required.get("nodeSelectorTerms"):
                required["nodeSelectorTerms"] = [dict(term) for term in terms]
    return copy
