"""A pod template in an object, and where the fields of its Pod stand in that object."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from policies.kubernetes.objects import JSONObject, mapping
from policies.kubernetes.paths import Path, descend, field_path, steps

Aliases = Mapping[str, str]
"""Where the parts of a composed Pod stand: a field below its spec, and its path in the object.

The field can also be ``metadata.labels``. A path that begins with a dot is below the path of the
spec.
"""

NOTHING: Mapping[str, Any] = MappingProxyType({})

_END_OF_A_STEP = re.compile(r"[.\[]|$")


class Unjudged(NamedTuple):
    """A part of an object whose Pods cannot be judged before they are created, and the reason.

    ``value`` is there if the part counts only where it names a pool, or opens every node.
    """

    path: Path
    reason: str
    value: Any = None


class Template(NamedTuple):
    """A Pod, or a pod template, and where its spec stands in its object.

    ``raw`` has ``spec`` and mostly ``metadata``. ``kind`` is the kind of the object: ``Pod``,
    ``Deployment``, ... If a controller composes the Pod, ``aliases`` maps its parts to their place,
    and ``inherited`` holds the parts that it takes over from elsewhere. With ``devices_only``, only
    the requested devices are known: the rest stands in another object. The Pod of a template that
    is not ``editable`` is judged with its mutations, which have no place in the object. ``root`` is
    the object.
    """

    raw: JSONObject
    spec_path: Path
    kind: str
    aliases: Aliases = NOTHING
    inherited: Mapping[str, Any] = NOTHING
    devices_only: bool = False
    editable: bool = True
    root: Mapping[str, Any] = NOTHING

    def holders(self) -> Iterator[tuple[Path, JSONObject]]:
        """Yield the mappings from the object down to the Pod's spec, each with its path."""
        for depth in range(len(self.spec_path) + 1):
            path = self.spec_path[:depth]
            if isinstance(value := descend(self.root, path), dict):
                yield path, value

    def at(self, field: str) -> str:
        """Return the path in the object of a field of the Pod: ``spec...`` or ``metadata...``."""
        spec_path = field_path(self.spec_path)
        if not field.startswith("spec"):
            if f".{spec_path}".endswith(".spec"):
                return f"{spec_path.removesuffix('spec')}{field}"
            # A composed Pod's metadata stands among the fields of its spec.
            return f"{spec_path}{self.aliases.get(field, f'.{field}')}"
        if self.aliases:
            below_spec = field.removeprefix("spec.")
            for end in _END_OF_A_STEP.finditer(below_spec):
                place = self.aliases.get(below_spec[: end.start()])
                if place is not None:
                    start = spec_path if place.startswith(".") else ""
                    return f"{start}{place}{below_spec[end.start() :]}"
        return f"{spec_path}{field.removeprefix('spec')}"

    def place(self, path: Path) -> Path:
        """Return the path in a workload at which a field below the spec is written.

        An inherited field is written into the Pod's own part of the object.
        """
        if self.aliases and path[0] not in self.inherited:
            return steps(self.at(f"spec.{field_path(path)}"))
        return (*self.spec_path, *path)


def names_device(container: JSONObject) -> bool:
    """Return whether a container's resources name a device, or use a claim."""
    resources = mapping(container.get("resources"))
    named = [*mapping(resources.get("limits")), *mapping(resources.get("requests"))]
    return bool(resources.get("claims")) or any("/" in str(name) for name in named)
