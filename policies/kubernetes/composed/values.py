"""Reading JSON of which nothing is checked yet."""

from __future__ import annotations

from typing import Any

from policies.kubernetes.objects import JSONObject


def mapping(value: Any) -> JSONObject:
    """Return the value if it is a mapping, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[tuple[int, JSONObject]]:
    """Return the mappings in a list, each with its index; none if the value is not a list."""
    if not isinstance(value, list):
        return []
    return [(index, item) for index, item in enumerate(value) if isinstance(item, dict)]


def descend(value: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path of keys, None where there is none."""
    for step in path:
        value = mapping(value).get(step)
    return value


def mounted_volumes(spec: JSONObject) -> frozenset[str]:
    """Return the names of the volumes that the containers and init containers of a Pod mount."""
    return frozenset(
        str(mount.get("name"))
        for kind in ("containers", "initContainers")
        for _, container in mappings(spec.get(kind))
        for _, mount in mappings(container.get("volumeMounts"))
    )


def names_device(container: JSONObject) -> bool:
    """Return whether a container's resources name a device, or use a claim."""
    resources = mapping(container.get("resources"))
    named = [*mapping(resources.get("limits")), *mapping(resources.get("requests"))]
    return bool(resources.get("claims")) or any("/" in str(name) for name in named)
