"""How controllers compose a Pod: one part is merged over another, and volumes are added."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from policies.kubernetes.objects import JSONObject, mappings
from policies.kubernetes.paths import Path, field_path

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
