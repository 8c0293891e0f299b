"""Workloads from an example: as it is written, and changed in ways that the fence reacts to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple

JSON = dict[str, Any]

GPU = {"nvidia.com/gpu": 1}
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


class Template(NamedTuple):
    """The parts of an object that become a Pod."""

    containers: list[JSON]
    spec: JSON
    """The mapping with the tolerations."""
    host: JSON
    """The mapping with ``hostNetwork``."""


def variants(obj: JSON) -> Iterator[tuple[str, JSON]]:
    """Yield the name of each variant, and the object."""
    yield "as written", obj
    for name, change in _CHANGES.items():
        copy = deepcopy(obj)
        found = list(templates(copy.get("spec")))
        if found:
            change(found)
            yield name, copy


def service_accounts(obj: JSON) -> set[str]:
    """Return the service accounts that the Pods name: they must exist before the Pods."""
    found = list(templates(obj.get("spec")))
    specs = [obj.get("spec", {}), *(template.spec for template in found)]
    names = {spec.get("serviceAccountName") for spec in specs}
    return {name for name in names if name}


def templates(spec: Any) -> Iterator[Template]:
    """Yield the Pod templates of a custom resource, and the templates of a Workflow."""
    if isinstance(spec, dict) and isinstance(spec.get("templates"), list):
        for template in spec["templates"]:
            yield from _of_workflow(template, spec)
    else:
        for found in _pod_specs(spec):
            yield Template(found["containers"], found, found)


def _of_workflow(template: JSON, workflow: JSON) -> Iterator[Template]:
    container = template.get("container") or template.get("script")
    containers = template.get("containerSet", {}).get("containers") or [container]
    if containers[0]:
        yield Template(containers, template, workflow)


def _request_everywhere(found: list[Template]) -> None:
    for template in found:
        resources = template.containers[0].setdefault("resources", {})
        for side in ("limits", "requests"):
            resources[side] = {**(resources.get(side) or {}), **GPU}


def _trespass(found: list[Template]) -> None:
    # Which step of a workflow runs last depends on the outputs of the others.
    is_workflow = found[-1].host is not found[-1].spec
    for template in found if is_workflow else found[-1:]:
        for container in template.containers:
            for side in ("limits", "requests"):
                (container.get("resources") or {}).get(side, {}).pop("nvidia.com/gpu", None)
        template.spec["tolerations"] = [TOLERATION]


def _share_the_network(found: list[Template]) -> None:
    _request_everywhere(found)
    found[0].host["hostNetwork"] = True


_CHANGES: dict[str, Callable[[list[Template]], None]] = {
    "every Pod requests a GPU": _request_everywhere,
    "a Pod trespasses": _trespass,
    "a GPU Pod on the host network": _share_the_network,
}


def _pod_specs(value: Any) -> Iterator[JSON]:
    if isinstance(value, dict):
        containers = value.get("containers")
        if isinstance(containers, list) and containers and isinstance(containers[0], dict):
            yield value
        else:
            for item in value.values():
                yield from _pod_specs(item)
    elif isinstance(value, list):
        for item in value:
            yield from _pod_specs(item)
