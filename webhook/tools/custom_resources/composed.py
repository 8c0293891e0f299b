"""A Pod that a controller composes: its parts are merged, volumes are added, and fields are placed.

A field of the Pod stands somewhere in the object that the Pod is composed of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from policies.kubernetes.editor import PatchOperation, clone
from policies.kubernetes.objects import JSONObject, mappings
from policies.kubernetes.paths import Path, field_path, steps
from policies.kubernetes.template import NOTHING, Made, Template

_END_OF_A_STEP = re.compile(r"[.\[]|$")


class ComposedTemplate(Template, frozen=True, kw_only=True):
    """A Pod that a controller composes from parts of an object.

    ``aliases`` has the place of a part: a field below the Pod's spec or ``metadata.labels``, and
    its path in the object. A path that begins with a dot is below the path of the spec.
    ``inherited`` holds the parts that the Pod takes over from elsewhere. The Pod of a template that
    is not ``editable`` is judged with its mutations, which have no place in the object.
    """

    aliases: Mapping[str, str] = NOTHING
    inherited: Mapping[str, Any] = NOTHING
    editable: bool = True

    def at(self, field: str) -> str:
        start = field_path(self.spec_path)
        part = field.removeprefix("spec.")
        for end in _END_OF_A_STEP.finditer(part):
            place = self.aliases.get(part[: end.start()])
            if place is not None:
                rest = part[end.start() :]
                return f"{start if place.startswith('.') else ''}{place}{rest}"
        return super().at(field)

    def placed(self, changes: Iterable[Made]) -> Iterator[Made]:
        if not self.editable:
            return
        inherited = dict(self.inherited)
        for rule, operation, (_, field, *below), value in changes:
            if field in inherited and below:
                # The Pod gets a field of its own: what it inherits, and what is added to that.
                own = clone(inherited.pop(str(field)))
                yield rule, PatchOperation, self._place((field,)), own
            yield rule, operation, self._place((field, *below)), value

    def _place(self, path: Path) -> Path:
        """Return where a field below the spec is written: an inherited one into the Pod's part."""
        if path[0] in self.inherited:
            return (*self.spec_path, *path)
        return steps(self.at(f"spec.{field_path(path)}"))


MERGE_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "containers": "name",
        "env": "name",
        "ephemeralContainers": "name",
        "initContainers": "name",
        "resourceClaims": "name",
        "volumeMounts": "mountPath",
        "volumes": "name",
    }
)
"""Lists that are merged item by item, and the field that identifies an item.

Other lists are replaced, ``tolerations`` among them.
"""


def merge(base: Any, patch: Any, keys: Mapping[str, str] = MERGE_KEYS, field: str = "") -> Any:
    """Return ``base`` with ``patch`` over it. Neither is changed; the result shares parts of both.

    ``keys`` are the merge keys of lists, ``field`` is the name of the field that holds the values.
    """
    if isinstance(base, dict) and isinstance(patch, dict):
        merged = dict(base)
        for name, value in patch.items():
            merged[name] = merge(merged.get(name), value, keys, name)
        return merged
    key = keys.get(field)
    if key and _is_keyed(base, key) and _is_keyed(patch, key):
        items = {item[key]: item for item in base}
        for item in patch:
            items[item[key]] = merge(items.get(item[key]), item, keys)
        return list(items.values())
    return patch


def _is_keyed(value: Any, key: str) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, dict) and isinstance(item.get(key), str) for item in value
    )


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
