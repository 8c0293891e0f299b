"""Workloads from an example: as it is written, and changed in ways that the fence reacts to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

JSON = dict[str, Any]

GPU = {"nvidia.com/gpu": 1}
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def variants(obj: JSON) -> Iterator[tuple[str, JSON]]:
    """Yield the name of each variant, and the object."""
    yield "as written", obj
    for name, change in _CHANGES.items():
        copy = deepcopy(obj)
        specs = list(_pod_specs(copy.get("spec")))
        if specs:
            change(specs)
            yield name, copy


def service_accounts(obj: JSON) -> set[str]:
    """Return the service accounts that the Pods name: they must exist before the Pods."""
    names = {spec.get("serviceAccountName") for spec in _pod_specs(obj.get("spec"))}
    return {name for name in names if name}


def _request_everywhere(specs: list[JSON]) -> None:
    for spec in specs:
        container = spec["containers"][0]
        resources = container.setdefault("resources", {})
        for side in ("limits", "requests"):
            resources[side] = {**(resources.get(side) or {}), **GPU}


def _trespass(specs: list[JSON]) -> None:
    for container in specs[-1]["containers"]:
        for side in ("limits", "requests"):
            (container.get("resources") or {}).get(side, {}).pop("nvidia.com/gpu", None)
    specs[-1]["tolerations"] = [TOLERATION]


def _share_the_network(specs: list[JSON]) -> None:
    _request_everywhere(specs)
    specs[0]["hostNetwork"] = True


_CHANGES: dict[str, Callable[[list[JSON]], None]] = {
    "every Pod requests a GPU": _request_everywhere,
    "the last Pod trespasses": _trespass,
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
