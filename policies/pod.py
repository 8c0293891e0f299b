"""The only walker over a Pod's containers and their resources.

A rule that walks by itself forgets init or ephemeral containers one day; so none does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from policies.facts import JSONObject

if TYPE_CHECKING:
    from policies.requests import DeviceRequest

ContainerKind = Literal["initContainers", "containers", "ephemeralContainers"]
CONTAINER_KINDS: tuple[ContainerKind, ...] = (
    "initContainers",
    "containers",
    "ephemeralContainers",
)

ResourceSide = Literal["limits", "requests"]
RESOURCE_SIDES: tuple[ResourceSide, ...] = ("limits", "requests")


class Container(NamedTuple):
    """A container of any kind; ``field`` is its path in a Pod."""

    raw: JSONObject
    kind: ContainerKind
    position: int

    @property
    def field(self) -> str:
        return f"spec.{self.kind}[{self.position}]"

    @property
    def name(self) -> str:
        return self.raw.get("name") or f"#{self.position}"

    def resources(self, side: ResourceSide) -> JSONObject:
        """Return the container's limits or requests: resource name to quantity as written."""
        resources: JSONObject = (self.raw.get("resources") or {}).get(side) or {}
        return resources


@dataclass(frozen=True, slots=True)
class Pod:
    """A view of one Pod or pod template; the raw JSON stays what it is.

    ``spec_path`` is where its spec stands in the object: ``spec`` for a Pod, ``spec.template.spec``
    for a Deployment. ``kind`` is the kind of the object.
    """

    raw: JSONObject
    spec_path: str = "spec"
    kind: str = "Pod"
    requests: tuple[DeviceRequest, ...] = ()
    """The Pod's requests for devices of a pool; a GPU Pod has at least one."""
    as_written: Pod | None = None
    """For the template of a core workload, what the API server itself validates: the template
    without what the setters would add to the Pods made of it."""

    @property
    def spec(self) -> JSONObject:
        spec: JSONObject = self.raw["spec"]
        return spec

    @property
    def metadata(self) -> JSONObject:
        return self.raw.get("metadata") or {}

    def at(self, field: str) -> str:
        """Return where in the object stands what is ``field`` (``spec...``) in a Pod."""
        return f"{self.spec_path}{field.removeprefix('spec')}"

    def containers(self) -> Iterator[Container]:
        """Yield init containers (sidecars among them), containers and ephemeral containers."""
        spec = self.spec
        for kind in CONTAINER_KINDS:
            for index, raw in enumerate(spec.get(kind) or ()):
                yield Container(raw, kind, index)

    @property
    def is_windows(self) -> bool:
        return (self.spec.get("os") or {}).get("name") == "windows"
