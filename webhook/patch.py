"""The difference between two JSON values as a JSON Patch (RFC 6902).

Written for what setters do: keys and list entries are added to a copy, which shares with the
original what was not written to; that is passed over unseen. For any two values the patch is exact,
but not the shortest: lists are compared entry by entry from the front, so that an entry put in at
the front is a replacement of all of them.
"""

from __future__ import annotations

from typing import Any

Operation = dict[str, Any]

# Parent and last step, up to the root: a path costs one tuple a level, and is spelled out only
# where something differs.
_Path = tuple["_Path", str | int] | None


def diff(original: Any, mutated: Any, prefix: str = "") -> list[Operation]:
    """Return the operations that turn ``original`` into ``mutated``, both parsed JSON.

    ``prefix`` is the JSON pointer (RFC 6901) of the values in their document. Values of different
    types differ: ``1``, ``1.0`` and ``true`` are three values. Entries of ``mutated`` become part
    of the result uncopied.
    """
    operations: list[Operation] = []
    if original is not mutated:
        _compare(original, mutated, None, prefix, operations)
    return operations


def _compare(
    original: Any, mutated: Any, path: _Path, prefix: str, operations: list[Operation]
) -> None:
    kind = type(original)
    if kind is dict is type(mutated):
        _compare_objects(original, mutated, path, prefix, operations)
    elif kind is list is type(mutated):
        _compare_arrays(original, mutated, path, prefix, operations)
    elif kind is not type(mutated) or original != mutated:
        operations.append(_operation("replace", path, prefix, mutated))


def _compare_objects(
    original: dict[str, Any],
    mutated: dict[str, Any],
    path: _Path,
    prefix: str,
    operations: list[Operation],
) -> None:
    kept = 0
    for key, value in original.items():
        if key not in mutated:
            operations.append({"op": "remove", "path": _pointer((path, key), prefix)})
            continue
        kept += 1
        other = mutated[key]
        if value is not other:
            _compare(value, other, (path, key), prefix, operations)
    if kept < len(mutated):
        for key, value in mutated.items():
            if key not in original:
                operations.append(_operation("add", (path, key), prefix, value))


def _compare_arrays(
    original: list[Any],
    mutated: list[Any],
    path: _Path,
    prefix: str,
    operations: list[Operation],
) -> None:
    for index, (value, other) in enumerate(zip(original, mutated, strict=False)):
        if value is not other:
            _compare(value, other, (path, index), prefix, operations)
    # From the end, so that no removal moves what the next one names.
    operations.extend(
        {"op": "remove", "path": _pointer((path, index), prefix)}
        for index in range(len(original) - 1, len(mutated) - 1, -1)
    )
    operations.extend(
        _operation("add", (path, "-"), prefix, value) for value in mutated[len(original) :]
    )


def _operation(name: str, path: _Path, prefix: str, value: Any) -> Operation:
    return {"op": name, "path": _pointer(path, prefix), "value": value}


def _pointer(path: _Path, prefix: str) -> str:
    text = ""
    while path is not None:
        path, step = path
        if type(step) is str and ("/" in step or "~" in step):
            step = step.replace("~", "~0").replace("/", "~1")
        text = f"/{step}{text}"
    return prefix + text
