"""What mutations add to a Pod: applied to the typed Pod, and recorded as JSON Patch operations.

An addition is a partial value at a path. It merges: members and list entries are added, and nothing
that is there is changed. Parents that are absent, or null, are added with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import fields

from policies.kubernetes.objects import JSONObject
from policies.kubernetes.pod import Pod
from policies.kubernetes.template import Path, field_path


class Addition(NamedTuple):
    """A value that a mutation adds below the spec of a Pod, in the API's own names."""

    path: Path
    value: Any


class Operation(msgspec.Struct, frozen=True, tag_field="op", tag="add"):
    """An ``add`` operation of a JSON Patch (RFC 6902) on the whole object."""

    path: str
    value: Any


class Recorded(NamedTuple):
    """What was added: the field's path in the API server's notation, and its value."""

    field: str
    value: Any


class Editor:
    """Merges additions into one Pod and records them.

    With ``dry_run``, the additions are recorded and the Pod stays as it is.
    """

    def __init__(self, pod: Pod, *, dry_run: bool = False) -> None:
        self.operations: list[Operation] = []
        self.recorded: list[Recorded] = []
        self._pod = pod
        self._dry_run = dry_run
        self._inherited = dict(pod.template.inherited)

    def apply(self, additions: Iterable[Addition]) -> None:
        """Merge the additions of a mutation into the Pod, after all of them are computed."""
        found = list(additions)
        for addition in found:
            self._add(addition)
        if found and not self._dry_run:
            self._pod.changed()

    def _add(self, addition: Addition) -> None:
        target: Any = self._pod.spec
        for depth, step in enumerate(addition.path):
            child = _child(target, step)
            if child is None:
                value = addition.value
                for parent in reversed(addition.path[depth + 1 :]):
                    value = {parent: value}
                self._set(target, addition.path[: depth + 1], value)
                return
            before, target = target, child
        self._merge(before, addition.path, target, addition.value)

    def _merge(self, parent: Any, path: Path, target: Any, value: Any) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                child = _child(target, key)
                if child is None:
                    self._set(target, (*path, key), item)
                else:
                    self._merge(target, (*path, key), child, item)
        elif isinstance(value, list):
            self._append(parent, path, target, value)
        else:
            raise TypeError(f"{field_path(path)} is set already")

    def _set(self, target: Any, path: Path, value: Any) -> None:
        """Add a member to a struct or a mapping."""
        key = path[-1]
        self._record(path, value)
        if self._dry_run:
            return
        if isinstance(target, dict):
            target[key] = value
        else:
            struct: Any = type(target)
            made = msgspec.convert({key: value}, struct)
            attribute = _attributes(struct)[key]
            setattr(target, attribute, getattr(made, attribute))

    def _append(self, parent: Any, path: Path, entries: list[Any], value: list[Any]) -> None:
        """Append entries to a list."""
        for offset, item in enumerate(value):
            self._record((*path, len(entries) + offset), item)
        if not self._dry_run:
            key = path[-1]
            struct: Any = type(parent)
            made = msgspec.convert({key: value}, struct)
            entries += getattr(made, _attributes(struct)[key])

    def _record(self, path: Path, value: Any) -> None:
        template = self._pod.template
        field = template.at(f"spec.{field_path(path)}") if path else template.at("spec")
        self.recorded.append(Recorded(field, value))
        if self._dry_run or not template.editable:
            return
        first = path[0]
        if first in self._inherited and len(path) > 1:
            # The Pod gets a field of its own: what it inherits, and what is added to that.
            own = deepcopy(self._inherited.pop(str(first)))
            self.operations.append(Operation(_pointer(template.place((first,))), own))
        *steps, last = template.place(path)
        # By its index, the end of a list is "-".
        end = "-" if isinstance(path[-1], int) else last
        self.operations.append(Operation(_pointer((*steps, end)), value))


def patched(obj: JSONObject, operations: tuple[Operation, ...]) -> JSONObject:
    """Return the object with the operations applied; the object itself is not changed."""
    if not operations:
        return obj
    copy: JSONObject = clone(obj)
    for operation in operations:
        *steps, last = [
            step.replace("~1", "/").replace("~0", "~") for step in operation.path.split("/")[1:]
        ]
        parent: Any = copy
        for step in steps:
            parent = parent[int(step)] if isinstance(parent, list) else parent[step]
        if last == "-" and isinstance(parent, list):
            parent.append(clone(operation.value))
        else:
            parent[last] = clone(operation.value)
    return copy


def clone(value: Any) -> Any:
    """Return a copy of parsed JSON that shares nothing, not even with itself."""
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value


def _child(target: Any, step: str | int) -> Any:
    if isinstance(target, dict):
        return target.get(step)
    if isinstance(target, list):
        return target[int(step)]
    struct: Any = type(target)
    return getattr(target, _attributes(struct)[step])


@cache
def _attributes(struct: Any) -> dict[Any, str]:
    """Return the attributes of a struct by their names in JSON."""
    return {field.encode_name: field.name for field in fields(struct)}


def _pointer(path: Path) -> str:
    """Return a path as a JSON pointer (RFC 6901)."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)
