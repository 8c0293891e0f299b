"""Pod templates inside objects.

The workload kinds of the core groups have theirs in known places. Custom resources are searched by
structure, so that a training operator released tomorrow is understood today: a mapping with a
``spec`` that lists containers is a pod template, and a mapping that lists containers with images is
a Pod's spec itself. ``policies.kubernetes.composed`` handles Pods that are composed of pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policies.facts import JSONObject
from policies.kubernetes.composed import composer
from policies.kubernetes.template import Path, Template

MAX_DEPTH = 24
"""How deep custom resources are searched; the ecosystem's deepest template stands at 12."""

_SPEC_TEMPLATE: Path = ("spec", "template")
# By API group and kind, in any version: manifests outlive versions.
_CORE_WORKLOADS: dict[tuple[str, str], Path] = {
    ("", "PodTemplate"): ("template",),
    ("", "ReplicationController"): _SPEC_TEMPLATE,
    ("apps", "DaemonSet"): _SPEC_TEMPLATE,
    ("apps", "Deployment"): _SPEC_TEMPLATE,
    ("apps", "ReplicaSet"): _SPEC_TEMPLATE,
    ("apps", "StatefulSet"): _SPEC_TEMPLATE,
    ("extensions", "DaemonSet"): _SPEC_TEMPLATE,
    ("extensions", "Deployment"): _SPEC_TEMPLATE,
    ("extensions", "ReplicaSet"): _SPEC_TEMPLATE,
    ("batch", "Job"): _SPEC_TEMPLATE,
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
}
# Objects of these groups describe other objects, and run nothing themselves.
_DESCRIPTIVE_GROUPS = frozenset(
    {
        "",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "kustomize.config.k8s.io",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
    }
)


def templates(obj: JSONObject) -> tuple[Template, ...]:
    """Return every pod template of an object, in the order of the object; a Pod is its own."""
    key = _key(obj)
    if key == ("", "Pod"):
        return (Template(obj, ("spec",), "Pod"),)
    if path := _CORE_WORKLOADS.get(key):
        template = _descend(obj, path)
        return (Template(template, (*path, "spec"), key[1]),) if isinstance(template, dict) else ()
    if key[0] in _DESCRIPTIVE_GROUPS:
        return ()
    if compose := composer(*key):
        return tuple(compose(obj))
    return tuple(_search(obj.get("spec"), ("spec",), _kind(obj, "")))


def is_core_workload(obj: JSONObject) -> bool:
    """Tell whether the API server validates the object's pod template itself, before webhooks."""
    return _key(obj) in _CORE_WORKLOADS


def _key(obj: JSONObject) -> tuple[str, str]:
    """Return API group and kind."""
    group, slash, _ = str(obj.get("apiVersion") or "").partition("/")
    return (group if slash else "", str(obj.get("kind")))


def _descend(value: Any, path: Path) -> Any:
    for step in path:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def _search(value: Any, path: Path, kind: str) -> Iterator[Template]:
    """Yield the templates at and below ``value``; nothing below a template is searched."""
    if len(path) > MAX_DEPTH:
        return
    if isinstance(value, dict):
        kind = _kind(value, kind) if _is_object(value) else kind
        spec = value.get("spec")
        if isinstance(spec, dict) and _lists_containers(spec):
            yield Template(value, (*path, "spec"), kind)
        elif _lists_containers(value):
            yield Template({"spec": value}, path, kind)
        else:
            for key, item in value.items():
                yield from _search(item, (*path, key), kind)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _search(item, (*path, index), kind)


def _kind(obj: JSONObject, outer: str) -> str:
    """Return the kind of a custom resource, or of an object that one embeds.

    What Pods and DaemonSets may do, others that call themselves so may not. An embedded Pod is what
    the object around it makes of it.
    """
    group, kind = _key(obj)
    if (group, kind) == ("", "Pod"):
        return outer
    if kind in ("Pod", "DaemonSet") and (group, kind) not in _CORE_WORKLOADS:
        return f"{kind}.{group}"
    return kind


def _is_object(value: JSONObject) -> bool:
    """Tell whether a whole object is embedded here, as in an AppWrapper's components."""
    return isinstance(value.get("kind"), str) and isinstance(value.get("apiVersion"), str)


def _lists_containers(spec: JSONObject) -> bool:
    containers = spec.get("containers")
    return (
        isinstance(containers, list)
        and bool(containers)
        and all(
            isinstance(item, dict) and isinstance(item.get("image"), str) for item in containers
        )
    )
