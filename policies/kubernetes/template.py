"""A pod template in an object, and where the fields of its Pod stand in that object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from policies.kubernetes.objects import JSONObject, mapping
from policies.kubernetes.paths import Path, descend, field_path

NOTHING: Mapping[str, Any] = MappingProxyType({})

Made = tuple[str, Any, Path, Any]
"""A change: its mutation, its operation, a path, and the value."""


class Unjudged(NamedTuple):
    """A part of an object whose Pods cannot be judged before they are created, and the reason.

    ``value`` is there if the part counts only where it names a pool, or opens every node.
    """

    path: Path
    reason: str
    value: Any = None


class Template(msgspec.Struct, frozen=True):
    """A Pod, or a pod template, and where its spec stands in its object.

    ``raw`` has ``spec`` and mostly ``metadata``. ``kind`` is the kind of the object: ``Pod``,
    ``Deployment``, ... With ``devices_only``, only the requested devices are known: the rest stands
    in another object. ``root`` is the object, and ``role`` what it calls the Pods.
    """

    raw: JSONObject
    spec_path: Path
    kind: str
    devices_only: bool = False
    root: Mapping[str, Any] = NOTHING
    role: str = ""

    def holders(self) -> Iterator[tuple[Path, JSONObject]]:
        """Yield the mappings from the object down to the Pod's spec, each with its path."""
        for depth in range(len(self.spec_path) + 1):
            path = self.spec_path[:depth]
            if isinstance(value := descend(self.root, path), dict):
                yield path, value

    def at(self, field: str) -> str:
        """Return the path in the object of a field of the Pod: ``spec...`` or ``metadata...``."""
        spec_path = field_path(self.spec_path)
        if field.startswith("spec"):
            return f"{spec_path}{field.removeprefix('spec')}"
        if f".{spec_path}".endswith(".spec"):
            return f"{spec_path.removesuffix('spec')}{field}"
        return f"{spec_path}.{field}"

    def placed(self, changes: Iterable[Made]) -> Iterable[Made]:
        """Return changes of the Pod as changes of its object. Only a Pod itself has metadata."""
        if self.kind == "Pod":
            return changes
        return (
            (rule, operation, (*self.spec_path, *path[1:]), value)
            for rule, operation, path, value in changes
        )

    def request_for(self, _device: str) -> str:
        """Return how an author requests a device, if not in the resources of a container."""
        return ""


def names_device(container: JSONObject) -> bool:
    """Return whether a container's resources name a device, or use a claim."""
    resources = mapping(container.get("resources"))
    named = [*mapping(resources.get("limits")), *mapping(resources.get("requests"))]
    return bool(resources.get("claims")) or any("/" in str(name) for name in named)
