"""What mutations change in a Pod: applied to the typed Pod, and recorded as JSON Patch operations.

An addition merges: a struct adds the members that are absent or null, a mapping its new keys, and a
list its entries at the end. One that replaces changes texts. A removal drops one entry of a list or
mapping. Nothing else changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import msgspec
from msgspec import UNSET, to_builtins
from msgspec.structs import fields

from policies.kubernetes.core_v1 import Type
from policies.kubernetes.paths import Path, field_path, pointer
from policies.kubernetes.pod import Pod
from policies.kubernetes.template import Made


class Addition(msgspec.Struct, frozen=True, gc=False):
    """What a mutation adds to a struct of a Pod: a struct, list, mapping or scalar.

    ``target`` is the spec or the metadata, or a struct below. ``path`` leads from the Pod to the
    value, in the API's own names: its last step is the field of the target.
    """

    target: Type
    path: Path
    value: Any
    replaces: bool = False
    """Whether a text takes the place of another one."""


class Removal(msgspec.Struct, frozen=True, gc=False):
    """An entry of a list or mapping of a struct, to which ``path`` leads, that is removed."""

    target: Type
    path: Path
    index: int | str


Change = Addition | Removal


class PatchOperation(msgspec.Struct, frozen=True, gc=False, tag_field="op", tag="add"):
    """An operation of a JSON Patch (RFC 6902) on the whole object: ``add``, or of a subclass."""

    path: str
    value: Any = UNSET


class RemoveOperation(PatchOperation, frozen=True, gc=False, tag="remove"):
    """The operation ``remove``, which has no value."""


_pointer_in_pod = lru_cache(maxsize=1024)(pointer)
"""For speed. Keys that mutations add to a Pod are short; the path of another object may be any."""


class Editor:
    """Makes changes to one Pod and records them. Call the Pod's ``changed`` at the end.

    With ``dry_run``, the changes are recorded and the Pod stays as it is.
    """

    def __init__(self, pod: Pod, *, dry_run: bool = False) -> None:
        self._pod = pod
        self._dry_run = dry_run
        self._rule = ""
        self._made: list[Made] = []
        """The changes of the Pod, with types of operations, and values as parsed JSON."""

    @property
    def changes(self) -> list[tuple[str, PatchOperation]]:
        """The operations on the object, each with the mutation that it comes from."""
        template = self._pod.template
        pointer_to = _pointer_in_pod if template.kind == "Pod" else pointer
        return [
            (rule, operation(pointer_to(place), value))
            for rule, operation, place, value in template.placed(self._made)
        ]

    def made_by(self, rule: str) -> list[tuple[str, Any]]:
        """Return the changes of a mutation to the spec: the path of each field, and its value.

        If it changes only the metadata, what it adds to these. The value of an entry that the
        mutation removes is ``UNSET``.
        """
        made = [(path, value) for name, _, path, value in self._made if name == rule]
        in_spec = [(path, value) for path, value in made if path[0] == "spec"]
        shown = in_spec or [(path, value) for path, value in made if value is not UNSET]
        return [(self._pod.at(field_path(path)), value) for path, value in shown]

    def apply(self, changes: Sequence[Change], rule: str) -> None:
        """Make the changes of a mutation to the Pod."""
        self._rule = rule
        for change in changes:
            if isinstance(change, Removal):
                self._remove(change)
            else:
                self._add(change.target, change.path, change.value, replaces=change.replaces)

    def _remove(self, removal: Removal) -> None:
        place = (*removal.path, removal.index)
        self._made.append((self._rule, RemoveOperation, place, UNSET))
        if not self._dry_run:
            attributes = _attributes(removal.target.__class__)
            del getattr(removal.target, attributes[removal.path[-1]])[removal.index]

    def _add(self, target: Any, path: Path, value: Any, *, replaces: bool) -> None:
        """Add a value to the struct or mapping that has a place for it, the path's last step."""
        step = path[-1]
        if attributes := _attributes(target.__class__):
            present = getattr(target, attributes[step])
        else:
            present = target.get(step)
        changes_text = replaces and isinstance(value, str) and value != present
        if present is not None and not changes_text:
            self._merge(present, path, value, replaces=replaces)
            return
        self._made.append((self._rule, PatchOperation, path, to_builtins(value)))
        if self._dry_run:
            return
        if attributes:
            setattr(target, attributes[step], value)
        else:
            target[step] = value

    def _merge(self, present: Any, path: Path, value: Any, *, replaces: bool) -> None:
        """Add the members or entries of a value to what is present. A scalar stays as it is."""
        if isinstance(value, list):
            for index, item in enumerate(value, len(present)):
                self._made.append((self._rule, PatchOperation, (*path, index), to_builtins(item)))
            if not self._dry_run:
                present += value
        elif isinstance(value, dict):
            for key, item in value.items():
                self._add(present, (*path, key), item, replaces=replaces)
        elif attributes := _attributes(value.__class__):
            for name in to_builtins(value):
                own = getattr(value, attributes[name])
                self._add(present, (*path, name), own, replaces=replaces)


def clone(value: Any) -> Any:
    """Return a copy of parsed JSON that shares nothing, not even with itself."""
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value


@cache
def _attributes(type_: Any) -> dict[Any, str]:
    """Return the attributes of a struct by their names in JSON; nothing for another type."""
    if not issubclass(type_, msgspec.Struct):
        return {}
    return {field.encode_name: field.name for field in fields(type_)}
