"""The difference between two JSON values as a JSON Patch (RFC 6902).

Written for what mutations do: keys and list entries are added to a copy, which shares with the
original what was not written to; that is passed over unseen. For any two values the patch is exact,
but not the shortest: lists are compared entry by entry from the front, so that an entry put in at
the front is a replacement of all of them.
"""

from __future__ import annotations

from typing import Any

Operation = dict[str, Any]

_MISSING = object()


def diff(original: Any, mutated: Any, path: str = "") -> list[Operation]:
    """Return the operations that turn ``original`` into ``mutated``, both parsed JSON.

    ``path`` is the JSON pointer (RFC 6901) of the values in their document. Values of different
    types differ: ``1``, ``1.0`` and ``true`` are three values. Entries of ``mutated`` become part
    of the result uncopied.
    """
    operations: list[Operation] = []
    if original is not mutated:
        _compare(original, mutated, path, operations)
    return operations


def _compare(original: Any, mutated: Any, path: str, operations: list[Operation]) -> None:
    kind = type(original)
    if kind is dict is type(mutated):
        _compare_objects(original, mutated, path, operations)
    elif kind is list is type(mutated):
        _compare_arrays(original, mutated, path, operations)
    elif kind is not type(mutated) or original != mutated:
        operations.append({"op": "replace", "path": path, "value": mutated})


def _compare_objects(
    original: dict[str, Any], mutated: dict[str, Any], path: str, operations: list[Operation]
) -> None:
    kept = len(original)
    for key, value in original.items():
        other = mutated.get(key, _MISSING)
        if other is value:
            continue
        if other is _MISSING:
            kept -= 1
            operations.append({"op": "remove", "path": f"{path}/{_escaped(key)}"})
        else:
            _compare(value, other, f"{path}/{_escaped(key)}", operations)
    if kept < len(mutated):
        for key, value in mutated.items():
            if key not in original:
                operations.append({"op": "add", "path": f"{path}/{_escaped(key)}", "value": value})


def _compare_arrays(
    original: list[Any], mutated: list[Any], path: str, operations: list[Operation]
) -> None:
    for index, (value, other) in enumerate(zip(original, mutated, strict=False)):
        if value is not other:
            _compare(value, other, f"{path}/{index}", operations)
    if len(original) == len(mutated):
        return
    # From the end, so that no removal moves what the next one names.
    operations += [
        {"op": "remove", "path": f"{path}/{index}"}
        for index in range(len(original) - 1, len(mutated) - 1, -1)
    ]
    operations += [
        {"op": "add", "path": f"{path}/-", "value": value} for value in mutated[len(original) :]
    ]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
