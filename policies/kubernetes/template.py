"""A pod template, and where the fields of its Pod stand in the object around it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from policies.kubernetes.objects import JSONObject

Path = tuple[str | int, ...]

Aliases = Mapping[str, str]
"""Where the pieces of a composed Pod stand: beginning of a field's path, and its place."""


_NOT_IN_A_NAME = re.compile(r"[./\[\]]")
_END_OF_A_STEP = re.compile(r"[.\[]|$")

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Unjudged(NamedTuple):
    """A part of an object whose Pods cannot be judged before they are created, and the reason."""

    path: Path
    reason: str


class Template(NamedTuple):
    """A Pod, or a pod template, and where its spec stands in its object.

    ``raw`` has ``spec`` and, mostly, ``metadata``; editing it edits the object around it. ``kind``
    is the kind of that object: ``Pod``, ``Deployment``, ... Where a controller composes the Pod of
    pieces, ``aliases`` says where these stand (see ``locate``), ``holder`` is the mapping in which
    the rest of the spec stands, and ``inherited`` what its spec has from elsewhere. With
    ``devices_only``, the rest stands in another object: only what is requested is known. A template
    that is not ``editable`` is judged with the mutations of its Pods, and its object is unchanged:
    its pieces are not where mutations could be written.
    """

    raw: JSONObject
    spec_path: Path
    kind: str
    aliases: Aliases = NOTHING
    holder: JSONObject | None = None
    inherited: Mapping[str, Any] = NOTHING
    devices_only: bool = False
    editable: bool = True

    def at(self, field: str) -> str:
        """Return where in the object stands what is ``field`` in a Pod."""
        return locate(field, field_path(self.spec_path), self.aliases)

    def settle(self) -> None:
        """Write what was added to a composed spec to where it belongs."""
        if self.holder is None or not self.editable:
            return
        for key, value in self.raw["spec"].items():
            if key != "containers" and value != self.inherited.get(key, self.holder.get(key)):
                self.holder[key] = value


def field_path(path: Path) -> str:
    """Return a path in the API server's notation: ``spec.containers[0].image``."""
    text = ""
    for step in path:
        text = below(text, step)
    return text.removeprefix(".")


def below(path: str, step: str | int) -> str:
    """Return the path of what is one step below ``path``.

    Indexes stand in brackets, and so do keys that would not read as one step: ``nvidia.com/gpu``.
    """
    in_brackets = isinstance(step, int) or not step or _NOT_IN_A_NAME.search(step)
    return f"{path}[{step}]" if in_brackets else f"{path}.{step}"


def locate(field: str, spec_path: str, aliases: Aliases = NOTHING) -> str:
    """Return where in an object stands what is ``field`` in a Pod: ``spec...`` or ``metadata...``.

    ``spec_path`` is the path of the spec; metadata stands beside it. ``aliases`` takes the
    beginning of a field below the spec (``containers[0]``) to its place: below the spec's path if
    that begins with a dot, else from the root of the object.
    """
    if not field.startswith("spec"):
        if f".{spec_path}".endswith(".spec"):
            return f"{spec_path.removesuffix('spec')}{field}"
        # A composed Pod's metadata stands among the fields of its spec.
        return f"{spec_path}.{field}"
    if aliases:
        below_spec = field.removeprefix("spec.")
        if (place := aliases.get(below_spec)) is not None:
            return f"{spec_path}{place}" if place.startswith(".") else place
        for end in _END_OF_A_STEP.finditer(below_spec):
            place = aliases.get(below_spec[: end.start()])
            if place is not None:
                rest = below_spec[end.start() :]
                return f"{spec_path}{place}{rest}" if place.startswith(".") else f"{place}{rest}"
    return f"{spec_path}{field.removeprefix('spec')}"
