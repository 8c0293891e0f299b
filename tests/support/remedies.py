"""Remediations applied to a manifest as they are written: the edits of a finding, and its text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from policies.finding import Edit, Finding
from policies.kubernetes.editor import clone
from policies.kubernetes.paths import descend, steps

JSON = dict[str, Any]

_REQUEST = re.compile(r"^Set (\S+): (\d+) under resources\.limits(?! in place)")
_COUNT = re.compile(r"^Set (\S+): (\d+) under limits")
_REMOVAL = re.compile(r"\b[Rr]emove (?:the toleration|nodeName|[A-Z_]+_[A-Z_]+\b)")
_REMOVABLE = re.compile(r".*(?:\.tolerations\[\d+\]|\.nodeName|\.env\[\d+\])")
_SELECTION = re.compile(r"\b[Rr]emove the node selection")
_PART = re.compile(r"\.(nodeSelector|affinity)\b.*")
_RESOURCES = re.compile(r"(.*\.(?:init|ephemeralC|c)?[cC]?ontainers\[\d+\])\..*")
_POD = re.compile(r"(.*?)\.(?:tolerations|nodeSelector|affinity|nodeName)\b.*")


def remedies(obj: JSON, finding: Finding) -> Iterator[tuple[str, JSON]]:
    """Yield each remedy that can be applied without a decision of a person, and the object with it.

    ``edits`` are those of ``gpufence check --fix``. The others follow the words of the remediation.
    """
    if finding.fix:
        yield "edits", _edited(obj, finding.fix)
    text, path = finding.remediation, finding.path
    if match := _REQUEST.match(text):
        if (pod := _POD.fullmatch(path)) and _has_containers(obj, pod[1]):
            place = f"{pod[1]}.containers[0].resources.limits[{match[1]}]"
            yield "request", _edited(obj, [Edit("set", place, int(match[2]))])
    elif (match := _COUNT.match(text)) and (container := _RESOURCES.fullmatch(path)):
        resources = f"{container[1]}.resources"
        edits = [
            Edit("set", f"{resources}.limits[{match[1]}]", int(match[2])),
            Edit("remove", f"{resources}.requests[{match[1]}]"),
        ]
        yield "count", _edited(obj, edits)
    if _SELECTION.search(text) and _PART.search(path):
        spec = _PART.sub("", path)
        parts = [Edit("remove", f"{spec}.nodeSelector"), Edit("remove", f"{spec}.affinity")]
        yield "selection", _edited(obj, parts)
    # A mutation may have added what the finding is about.
    elif _REMOVAL.search(text) and _REMOVABLE.fullmatch(path) and descend(obj, steps(path)):
        yield "removal", _edited(obj, [Edit("remove", path)])


def _has_containers(obj: JSON, spec: str) -> bool:
    value = descend(obj, steps(spec))
    return isinstance(value, dict) and bool(value.get("containers"))


def _edited(obj: JSON, edits: Any) -> JSON:
    """Return a copy with the edits; removals of list entries come last, from the end."""
    copy: JSON = clone(obj)
    for edit in edits:
        if edit.kind != "remove":
            _apply(copy, edit)
    removals = [edit for edit in edits if edit.kind == "remove"]
    for edit in sorted(removals, key=lambda edit: _indexes(edit.path), reverse=True):
        _apply(copy, edit)
    return copy


def _indexes(path: str) -> list[tuple[int, str]]:
    return [(int(step) if step.isdecimal() else -1, step) for step in steps(path)]


def _apply(obj: JSON, edit: Edit) -> None:
    *above, last = steps(edit.path)
    parent = _created(obj, above) if edit.kind in ("set", "append") else descend(obj, above)
    if parent is None:
        return
    key: Any = int(last) if isinstance(parent, list) else last
    match edit.kind:
        case "set":
            parent[key] = edit.value
        case "append":
            parent[key] = [*(parent.get(key) or []), edit.value]
        case "remove" if key in parent if isinstance(parent, dict) else key < len(parent):
            del parent[key]
        case "rename" if key in parent:
            parent[edit.value] = parent.pop(key)


def _created(obj: JSON, path: list[str]) -> Any:
    """Return the value at a path, in which mappings that are absent are created."""
    for index, step in enumerate(path):
        above = descend(obj, path[:index])
        if isinstance(above, dict) and above.get(step) is None:
            above[step] = {}
    return descend(obj, path)
