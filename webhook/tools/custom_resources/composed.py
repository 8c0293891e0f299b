"""A Pod that a controller composes: where its fields stand in the object that it is composed of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from policies.kubernetes.editor import PatchOperation, clone
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
