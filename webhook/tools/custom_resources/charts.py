"""What objects set in the Pods of a chart or a kustomization: values, parameters and patches.

The Pods themselves are in the chart. Parameters and patches are read as the values that they set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from policies.kubernetes.objects import mappings
from policies.kubernetes.paths import Path, descend, steps
from policies.kubernetes.template import Unjudged
from policies.kubernetes.templates import Search
from policies.rules.check_device_leak import shows_devices
from policies.vendors import domains_of_vendors, variables_of
from webhook.documents.document import DocumentError
from webhook.documents.yaml_reader import read_yaml

_CHART = "a Helm chart makes Pods from these values; check what helm template prints"
_PATCH = "kustomize changes Pods by these patches; check what kustomize build prints"

_VALUES = frozenset(
    ("parameters", "set", "values", "valuesContent", "valuesObject", "valuesTemplate")
)
_PATCHES = frozenset(("patches", "patchesJson6902", "patchesStrategicMerge", "templatePatch"))
_STEP = re.compile(r"((?:\\.|[^.\[\\])+)|\[([0-9]{1,2})\]")
"""A step in the name of a parameter, as of ``helm --set``: a key, or an index."""


def settings(value: Any, path: Path = ()) -> Iterator[Unjudged]:
    """Yield the parts of an object that may set placements, devices and their variables."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from settings(item, (*path, index))
    elif isinstance(value, dict):
        for field, item in value.items():
            at = (*path, field)
            if field in _PATCHES:
                yield from _set_by(_patched(item), at, _PATCH)
            elif field in _VALUES:
                read = _nested_parameters(field, item)
                yield from _set_by(item if read is None else read, at, _CHART, exact=read is None)
            elif len(path) or field == "spec":
                yield from settings(item, at)


def _set_by(value: Any, path: Path, reason: str, *, exact: bool = False) -> Iterator[Unjudged]:
    """Yield what a value sets. The places are ``exact`` if the object has the value as it is."""
    found = [*_variables(value, path)]
    for part in Search().below(value, path, ""):
        if isinstance(part, Unjudged):
            found.append(part._replace(reason=reason))
        else:
            found.append(Unjudged(part.spec_path, reason, part.raw["spec"]))
    if exact:
        yield from found
    elif isinstance(value, str):
        yield Unjudged(path, reason, value)
    elif found:
        counts = any(part.value is None for part in found)
        yield Unjudged(path, reason, None if counts else [part.value for part in found])


def _variables(value: Any, path: Path) -> Iterator[Unjudged]:
    """Yield the variables that show devices: entries of a list, and fields."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _variables(item, (*path, index))
    elif isinstance(value, dict):
        variables = {**value, str(value.get("name")): value.get("value")}
        for name in variables_of(domains_of_vendors()).keys() & variables.keys():
            shown = variables[name]
            if shows_devices(name, shown if isinstance(shown, str) else None):
                yield Unjudged(path, _CHART, {name: shown})
        for field, item in value.items():
            yield from _variables(item, (*path, field))


def _nested_parameters(field: str, value: Any) -> Any:
    """Return the values of a text, or of parameters; None if they are written as they are."""
    if isinstance(value, str):
        return next(iter(_read(value)), value)
    pairs = [(each.get("name"), each.get("value")) for _, each in mappings(value)]
    if field == "set" and isinstance(value, dict):
        pairs = [*value.items()]
    return _tree((_steps_of_parameter(str(name)), item) for name, item in pairs) if pairs else None


def _steps_of_parameter(name: str) -> list[str | int]:
    found = _STEP.finditer(name)
    return [int(each[2]) if each[2] else re.sub(r"\\(.)", r"\1", each[1]) for each in found]


def _patched(value: Any) -> Any:
    """Return what patches set: as texts, as objects, and as operations of JSON Patch."""
    if isinstance(value, str):
        return list(map(_patched, _read(value))) or value
    if isinstance(value, dict):
        return {field: _patched(item) for field, item in value.items() if field != "target"}
    if not isinstance(value, list):
        return value
    if value and all(isinstance(descend(each, ("path",)), str) for each in value):
        return _tree((_steps_of(each["path"]), each.get("value")) for each in value)
    return list(map(_patched, value))


def _steps_of(pointer: str) -> list[str | int]:
    """Return the steps of a JSON pointer. Its - is the index of a new entry."""
    return [
        int(step) if step.isdecimal() else 100 if step == "-" else step for step in steps(pointer)
    ]


def _read(text: str) -> list[Any]:
    """Return the collections that a text of YAML holds; none if it is another text."""
    try:
        documents = [read_yaml(each) for each in re.split(r"(?m)^---\s*$", text)]
    except DocumentError:
        return []
    return [each.value for each in documents if each and isinstance(each.value, dict | list)]


def _tree(settings: Iterable[tuple[list[str | int], Any]]) -> Any:
    """Return the values that are set at paths, whose numbers are indexes of lists."""
    tree: dict[Any, Any] = {}
    for path, value in settings:
        inner: Any = tree
        for step in path[:-1]:
            inner = inner.setdefault(step, {}) if isinstance(inner, dict) else {}
        if path and isinstance(inner, dict):
            inner[path[-1]] = value
    return _with_lists(tree)


def _with_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {step: _with_lists(item) for step, item in value.items()}
    return [*inner.values()] if inner and all(isinstance(step, int) for step in inner) else inner
