"""A pod template in an object, and where the fields of its Pod stand in that object."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from policies.kubernetes.objects import JSONObject, mapping, mappings

Path = tuple[str | int, ...]
"""The steps from the root of an object to a value: keys of mappings and indexes of lists."""

Aliases = Mapping[str, str]
"""Where the parts of a composed Pod stand: a field below its spec, and its path in the object.

The field can also be ``metadata.labels``. A path that begins with a dot is below the path of the
spec.
"""

NOTHING: Mapping[str, Any] = MappingProxyType({})

_NOT_IN_A_NAME = re.compile(r"[./\[\]]")
_END_OF_A_STEP = re.compile(r"[.\[]|$")
_STEP = re.compile(r"\[(?P<bracketed>[^\]]*)\]|(?P<plain>[^.\[\]]+)")


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
        value: Any = self.root
        for depth in range(len(self.spec_path) + 1):
            if depth:
                value = step_below(value, self.spec_path[depth - 1])
            if isinstance(value, dict):
                yield self.spec_path[:depth], value

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
            return _steps(self.at(f"spec.{field_path(path)}"))
        return (*self.spec_path, *path)


def _steps(path: str) -> Path:
    """Return the steps of a path in the API server's notation."""
    return tuple(
        int(step["bracketed"])
        if (step["bracketed"] or "").isdigit()
        else step["bracketed"] or step["plain"] or ""
        for step in _STEP.finditer(path)
    )


def step_below(value: Any, step: str | int) -> Any:
    """Return what is one step below; None if an operator composes what is there from nothing."""
    if isinstance(value, dict):
        return value.get(step)
    return value[step] if isinstance(value, list) and isinstance(step, int) else None


def field_path(path: Iterable[str | int]) -> str:
    """Return a path in the API server's notation: ``spec.containers[0].image``."""
    text = ""
    for step in path:
        text = below(text, step)
    return text.removeprefix(".")


def below(path: str, step: str | int) -> str:
    """Return the path of what is one step below ``path``.

    Indexes stand in brackets, and so do keys that do not read as one step: ``nvidia.com/gpu``.
    """
    in_brackets = isinstance(step, int) or not step or _NOT_IN_A_NAME.search(step)
    return f"{path}[{step}]" if in_brackets else f"{path}.{step}"


def add_volumes(spec: JSONObject, aliases: dict[str, str], holder: JSONObject, path: Path) -> None:
    """Add the volumes of the holder, which is at a path, that a container of the Pod mounts."""
    mounted = {
        str(mount.get("name"))
        for kind in ("containers", "initContainers")
        for _, container in mappings(spec.get(kind))
        for _, mount in mappings(container.get("volumeMounts"))
    }
    volumes = [volume for _, volume in mappings(spec.get("volumes"))]
    for index, volume in mappings(holder.get("volumes")):
        if str(volume.get("name")) in mounted:
            aliases[f"volumes[{len(volumes)}]"] = f"{field_path(path)}.volumes[{index}]"
            volumes.append(volume)
    if volumes:
        spec["volumes"] = volumes


def names_device(container: JSONObject) -> bool:
    """Return whether a container's resources name a device, or use a claim."""
    resources = mapping(container.get("resources"))
    named = [*mapping(resources.get("limits")), *mapping(resources.get("requests"))]
    return bool(resources.get("claims")) or any("/" in str(name) for name in named)
