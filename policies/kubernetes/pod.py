"""The only walker over a Pod's containers and their resources.

A rule that walks by itself forgets init or ephemeral containers one day; so none does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from policies.kubernetes.objects import JSONObject
from policies.kubernetes.scheduling import Alternative, alternatives
from policies.kubernetes.template import NOTHING, Aliases, Template, field_path, locate

ContainerKind = Literal["initContainers", "containers", "ephemeralContainers"]
CONTAINER_KINDS: tuple[ContainerKind, ...] = (
    "initContainers",
    "containers",
    "ephemeralContainers",
)

ResourceSide = Literal["limits", "requests"]
RESOURCE_SIDES: tuple[ResourceSide, ...] = ("limits", "requests")


class Container(msgspec.Struct, frozen=True):
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

    def names_device(self) -> bool:
        """Tell whether the resources name more than CPU, memory and the like."""
        # Loops: any() with a generator takes thrice the time, and this runs for every container.
        for side in RESOURCE_SIDES:
            for name in self.resources(side):
                if "/" in name:
                    return True
        return False


class DeviceResource(msgspec.Struct, frozen=True):
    """What a container says of one device resource (``nvidia.com/gpu``)."""

    container: Container
    name: str
    quantities: Mapping[ResourceSide, Any]
    """The quantities as written; a side that does not name the resource is left out."""

    def field(self, side: ResourceSide) -> str:
        """Return the path of one of the quantities in a Pod."""
        return f"{self.container.field}.resources.{side}[{self.name}]"


class Pod(msgspec.Struct, eq=False):
    """A view of one Pod or pod template; the raw JSON stays what it is.

    ``spec_path`` is where its spec stands in the object: ``spec`` for a Pod, ``spec.template.spec``
    for a Deployment. ``kind`` is the kind of the object.
    """

    raw: JSONObject
    spec_path: str = "spec"
    kind: str = "Pod"
    aliases: Aliases = NOTHING
    """Where the pieces of a composed Pod stand (``policies.kubernetes.template.locate``)."""
    devices_only: bool = False
    """Whether nothing is known of the Pod but the devices that it requests."""
    _containers: tuple[Container, ...] | None = None
    _device_containers: tuple[Container, ...] | None = None
    _device_resources: tuple[DeviceResource, ...] | None = None
    _selection: tuple[Alternative, ...] | None = None

    def on(self, raw: JSONObject) -> Pod:
        """Return the same view of another, changed Pod."""
        return Pod(raw, self.spec_path, self.kind, self.aliases, self.devices_only)

    @property
    def spec(self) -> JSONObject:
        spec: JSONObject = self.raw["spec"]
        return spec

    @property
    def metadata(self) -> JSONObject:
        return self.raw.get("metadata") or {}

    def at(self, field: str) -> str:
        """Return where in the object stands what is ``field`` (``spec...``) in a Pod."""
        return locate(field, self.spec_path, self.aliases)

    def containers(self) -> tuple[Container, ...]:
        """Return init containers (sidecars among them), containers and ephemeral containers."""
        if self._containers is None:
            spec = self.spec
            # Lists here and below: a generator takes longer than what it gives, for so few.
            self._containers = tuple(
                [
                    Container(raw, kind, position)
                    for kind in CONTAINER_KINDS
                    for position, raw in enumerate(spec.get(kind) or ())
                ]
            )
        return self._containers

    def device_containers(self) -> tuple[Container, ...]:
        """Return the containers whose resources name more than CPU, memory and the like.

        Device resources carry a domain (``nvidia.com/gpu``), the others do not. Ephemeral
        containers may not have resources, so what one claims to need is nothing.
        """
        if self._device_containers is None:
            self._device_containers = tuple(
                [
                    container
                    for container in self.containers()
                    if container.kind != "ephemeralContainers" and container.names_device()
                ]
            )
        return self._device_containers

    def device_resources(self) -> tuple[DeviceResource, ...]:
        """Return what those containers say of devices, in their order; limits come first."""
        if self._device_resources is None:
            found: list[DeviceResource] = []
            for container in self.containers():
                if container.kind != "ephemeralContainers" and container.raw.get("resources"):
                    found += _device_resources(container)
            self._device_resources = tuple(found)
        return self._device_resources

    def selection(self) -> tuple[Alternative, ...]:
        """Return the ORed ways in which the Pod's node selection can be met."""
        if self._selection is None:
            self._selection = tuple(alternatives(self.spec))
        return self._selection

    @property
    def is_windows(self) -> bool:
        return (self.spec.get("os") or {}).get("name") == "windows"


def new_debug_containers(pod: Pod, old: JSONObject | None) -> list[Container]:
    """Return the ephemeral containers that a request adds to the Pod; all else is immutable."""
    existing = ((old or {}).get("spec") or {}).get("ephemeralContainers") or ()
    names = {container.get("name") for container in existing}
    return [
        container
        for container in pod.containers()
        if container.kind == "ephemeralContainers" and container.raw.get("name") not in names
    ]


def _device_resources(container: Container) -> Iterator[DeviceResource]:
    limits, requests = container.resources("limits"), container.resources("requests")
    for name, quantity in limits.items():
        if "/" in name:
            given: dict[ResourceSide, Any] = {"limits": quantity}
            if name in requests:
                given["requests"] = requests[name]
            yield DeviceResource(container, name, given)
    for name, quantity in requests.items():
        if "/" in name and name not in limits:
            yield DeviceResource(container, name, {"requests": quantity})


def pod_of(template: Template) -> Pod:
    """Return the Pod of a template."""
    return Pod(
        template.raw,
        field_path(template.spec_path),
        template.kind,
        template.aliases,
        devices_only=template.devices_only,
    )
