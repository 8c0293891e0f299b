"""What mutations add to a Pod: applied to the typed Pod, and recorded as JSON Patch operations.

An addition is a partial value at a path. It merges: members and list entries are added, and nothing
that is there is changed. Parents that are absent, or null, are added with it.
"""

from __future__ import annotations

from collections.abc import Iterable
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


class Editor:
    """Merges additions into one Pod and records them. Call the Pod's ``changed`` at the end.

    With ``dry_run``, the additions are recorded and the Pod stays as it is.
    """

    def __init__(self, pod: Pod, *, dry_run: bool = False) -> None:
        self._pod = pod
        self._dry_run = dry_run
        self._added: list[tuple[Path, Any]] = []
        """Paths below the spec, and values. A path that ends with an index appends to a list."""

    @property
    def operations(self) -> list[Operation]:
        """The operations on the object; none if the Pod's parts have no place there."""
        template = self._pod.template
        if not template.editable:
            return []
        operations: list[Operation] = []
        inherited = dict(template.inherited)
        for path, value in self._added:
            if path[0] in inherited and len(path) > 1:
                # The Pod gets a field of its own: what it inherits, and what is added to that.
                own = clone(inherited.pop(str(path[0])))
                operations.append(Operation(_pointer(template.place(path[:1])), own))
            place = template.place(path)
            if isinstance(path[-1], int):
                place = (*place[:-1], "-")
            operations.append(Operation(_pointer(place), value))
        return operations

    @property
    def recorded(self) -> list[tuple[str, Any]]:
        """What was added: the path of each field in the object, and its value."""
        at = self._pod.at
        return [(at(f"spec.{field_path(path)}"), value) for path, value in self._added]

    def apply(self, additions: Iterable[Addition]) -> None:
        """Merge the additions of a mutation into the Pod, after all of them are computed."""
        for addition in list(additions):
            self._add(addition)

    def _add(self, addition: Addition) -> None:
        path, value = addition
        target: Any = self._pod.spec
        for depth, step in enumerate(path, 1):
            child = _child(target, step)
            if child is None:
                for parent in reversed(path[depth:]):
                    value = {parent: value}
                self._set(target, path[: depth - 1], {step: value})
                return
            before, target = target, child
        self._merge(before, path, target, value)

    def _merge(self, parent: Any, path: Path, target: Any, value: Any) -> None:
        if isinstance(value, dict):
            absent = {}
            for key, item in value.items():
                child = _child(target, key)
                if child is None:
                    absent[key] = item
                else:
                    self._merge(target, (*path, key), child, item)
            if absent:
                self._set(target, path, absent)
        elif isinstance(value, list):
            self._append(parent, path, target, value)
        else:
            raise TypeError(f"{field_path(path)} is already set")

    def _set(self, target: Any, path: Path, members: dict[Any, Any]) -> None:
        """Add members to the struct or mapping at the path, which has none of them."""
        for key, value in members.items():
            self._added.append(((*path, key), value))
        if self._dry_run:
            return
        if isinstance(target, dict):
            target.update(members)
            return
        struct: Any = type(target)
        attributes, converted = _attributes(struct), msgspec.convert(members, struct)
        for key in members:
            setattr(target, attributes[key], getattr(converted, attributes[key]))

    def _append(self, parent: Any, path: Path, entries: list[Any], value: list[Any]) -> None:
        """Append entries to a list, which ``parent`` has at the end of the path."""
        for index, item in enumerate(value, len(entries)):
            self._added.append(((*path, index), item))
        if not self._dry_run:
            struct: Any = type(parent)
            made = msgspec.convert({path[-1]: value}, struct)
            entries += getattr(made, _attributes(struct)[path[-1]])


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
    struct: Any = type(target)
    if struct is dict:
        return target.get(step)
    if struct is list:
        return target[step]
    return getattr(target, _attributes(struct)[step])


@cache
def _attributes(struct: Any) -> dict[Any, str]:
    """Return the attributes of a struct by their names in JSON."""
    return {field.encode_name: field.name for field in fields(struct)}


def _pointer(path: Path) -> str:
    """Return a path as a JSON pointer (RFC 6901)."""
    text = "/" + "/".join(map(str, path))
    if text.count("/") == len(path) and "~" not in text:
        return text
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
