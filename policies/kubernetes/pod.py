"""The view that rules have of a Pod, with the only walker over its containers.

Rules use this walker, so that no rule misses init or ephemeral containers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from policies.kubernetes import core_v1
from policies.kubernetes.core_v1 import ObjectMeta, PodSpec, ResourceRequirements, SecurityContext
from policies.kubernetes.nodes import NodeIndex, NodeSet
from policies.kubernetes.objects import mapping, mappings
from policies.kubernetes.quantity import NANOS, parse_quantity
from policies.kubernetes.scheduling import Alternative, alternatives
from policies.kubernetes.selector import requires
from policies.kubernetes.template import Template

ContainerKind = Literal["initContainers", "containers", "ephemeralContainers"]
ResourceSide = Literal["limits", "requests"]
RESOURCE_SIDES: tuple[ResourceSide, ...] = ("limits", "requests")

NO_CONTEXT = SecurityContext()
"""The security context of a container or Pod that has none. Never changed."""

_OS, _BETA_OS, _WINDOWS = "kubernetes.io/os", "beta.kubernetes.io/os", ("windows",)
_SETS_OWNER = re.compile(r"(^|[,\s])(uid|gid|umask|file-mode)=")
"""Options of a mount that say who may write."""
_SYS_ADMIN = frozenset({"SYS_ADMIN", "CAP_SYS_ADMIN"})
_LOCK_MEMORY = frozenset({"IPC_LOCK", "CAP_IPC_LOCK"})

_A_POD = Template({}, ("spec",), "Pod")
_NO_METADATA = ObjectMeta()


class Container(msgspec.Struct, frozen=True, gc=False):
    """A container of any kind, and its place in the Pod."""

    spec: core_v1.ContainerSpec
    kind: ContainerKind
    position: int
    security_context: SecurityContext

    @property
    def field(self) -> str:
        """Its path in a Pod."""
        return f"spec.{self.kind}[{self.position}]"

    @property
    def name(self) -> str:
        return self.spec.name or f"#{self.position}"

    @property
    def env(self) -> Sequence[core_v1.EnvVar]:
        return self.spec.env or ()

    @property
    def mounts(self) -> Sequence[core_v1.VolumeMount]:
        return self.spec.volume_mounts or ()

    def resources(self, side: ResourceSide) -> Mapping[str, Any]:
        """Return the container's limits or requests: resource name to quantity as written."""
        resources = self.spec.resources
        if resources is None:
            return {}
        return (resources.limits if side == "limits" else resources.requests) or {}


class DeviceResource(msgspec.Struct, frozen=True, gc=False):
    """The quantities of one device resource (``nvidia.com/gpu``) in a container."""

    container: Container
    name: str
    quantities: Mapping[ResourceSide, Any]
    """The quantities as written, without a side that does not name the resource."""
    nanos: Mapping[ResourceSide, int]
    """The same quantities in nanos."""

    def field(self, side: ResourceSide) -> str:
        """Return the path of one of the quantities in a Pod."""
        return f"{self.container.field}.resources.{side}[{self.name}]"


class SelectedNodes(NamedTuple):
    """The known nodes that a Pod's node selection accepts, together and by alternative."""

    all: NodeSet
    by_alternative: tuple[NodeSet, ...]
    source: NodeIndex
    version: int


class Pod:
    """A Pod or the Pod of a pod template, and where its fields stand in the object.

    ``changed`` derives its attributes from the spec again, after a mutation has added something.
    """

    __slots__ = (
        "_alternatives",
        "_device_peaks",
        "_selected",
        "_selection",
        "containers",
        "device_resources",
        "has_metadata",
        "metadata",
        "spec",
        "template",
    )

    def __init__(
        self, spec: PodSpec, metadata: ObjectMeta | None = None, template: Template = _A_POD
    ) -> None:
        """Read the spec.

        Raises:
            InvalidQuantityError: (policies.kubernetes.quantity) what is requested is no quantity.
        """
        self.spec = spec
        self.metadata = metadata or _NO_METADATA
        self.has_metadata = metadata is not None and template.kind == "Pod"
        """Whether the metadata are those of the object, and may be added to."""
        self.template = template
        self.changed()

    def changed(self) -> None:
        """Derive the attributes that rules read from the spec."""
        self.containers = _containers(self.spec)
        """Init containers (sidecars among them), containers and ephemeral containers."""
        self.device_resources = _device_resources(self.containers)
        """The device resources of the containers, in their order; limits come first."""
        self._device_peaks: Mapping[str, int] | None = None
        self._alternatives: Sequence[Alternative] | None = None
        self._selection: Sequence[Alternative] | None = None
        self._selected: SelectedNodes | None = None

    def take(self, defaults: ResourceRequirements) -> None:
        """Give containers the devices that they do not name, as a LimitRange does."""
        for container in self.containers:
            own = container.spec.resources or ResourceRequirements()
            named = {**(own.limits or {}), **(own.requests or {})}
            added = {n: q for n, q in (defaults.limits or {}).items() if n not in named}
            if added and container.kind != "ephemeralContainers":
                requests = {name: (defaults.requests or {})[name] for name in added}
                container.spec.resources = ResourceRequirements(
                    {**(own.limits or {}), **added},
                    {**(own.requests or {}), **requests},
                    own.claims,
                )
        self.changed()

    @property
    def kind(self) -> str:
        """The kind of the object: ``Pod``, ``Deployment``, ..."""
        return self.template.kind

    @property
    def devices_only(self) -> bool:
        """Whether only the requested devices of the Pod are known."""
        return self.template.devices_only

    @property
    def is_windows(self) -> bool:
        return self.spec.os is not None and self.spec.os.name == "windows"

    @property
    def runs_on_windows(self) -> bool:
        """Whether its nodes run Windows: API servers look at the field ``os`` alone."""
        spec = self.spec
        if self.is_windows or not (spec.node_selector or spec.affinity):
            return self.is_windows
        for each in self.selection():
            if not (requires(each, _OS, _WINDOWS) or requires(each, _BETA_OS, _WINDOWS)):
                return False
        return bool(self.selection())

    @property
    def annotations(self) -> Mapping[str, str | None]:
        return self.metadata.annotations or {}

    @property
    def security_context(self) -> SecurityContext:
        return self.spec.security_context or NO_CONTEXT

    def at(self, field: str) -> str:
        """Return the path in the object of a field of the Pod: ``spec...`` or ``metadata...``."""
        return field if self.template.kind == "Pod" else self.template.at(field)

    def device_peaks(self) -> Mapping[str, int]:
        """Return how many devices of each resource the scheduler reserves for the Pod.

        Raises:
            InvalidQuantityError: (policies.kubernetes.quantity) what is requested is no quantity.
        """
        if self._device_peaks is None:
            self._device_peaks = device_peaks(self.spec.init_containers, self.spec.containers)
        return self._device_peaks

    def alternatives(self) -> Sequence[Alternative]:
        """Return an alternative for each term of the required node affinity; one without terms."""
        if self._alternatives is None:
            self._alternatives = alternatives(self.spec)
        return self._alternatives

    def selection(self) -> Sequence[Alternative]:
        """Return the ORed alternatives by which the Pod's node selection can be met."""
        if self._selection is None:
            self._selection = [each for each in self.alternatives() if each.parses]
        return self._selection

    def selected_nodes(self, nodes: NodeIndex) -> SelectedNodes:
        """Return the nodes that the selection accepts."""
        known = self._selected
        if known is None or known.source is not nodes or known.version != nodes.version:
            by_alternative = tuple(map(nodes.accepted_by, self.selection()))
            all_nodes = reduce(or_, by_alternative, 0)
            known = SelectedNodes(all_nodes, by_alternative, nodes, nodes.version)
            self._selected = known
        return known


def added_capabilities(context: SecurityContext) -> Collection[str]:
    """Return the capabilities that the security context adds."""
    return () if context.capabilities is None else context.capabilities.add or ()


def locks_memory(context: SecurityContext) -> bool:
    """Return whether a container adds ``IPC_LOCK``, which has an effect for root only.

    Runtimes set no ambient capabilities.
    """
    return not _LOCK_MEMORY.isdisjoint(added_capabilities(context))


def excluding_no_escalation(context: SecurityContext) -> list[str]:
    """Return the privileges that ``allowPrivilegeEscalation: false`` would contradict.

    The API server rejects it with ``privileged: true`` and ``CAP_SYS_ADMIN`` (core
    validation.go, ValidateSecurityContext); the same capability without its prefix counts as well.
    """
    privileges = ["privileged"] if context.privileged else []
    return privileges + [name for name in added_capabilities(context) if name in _SYS_ADMIN]


def new_debug_containers(pod: Pod, old: PodSpec | None) -> list[Container]:
    """Return the ephemeral containers that a request adds to the Pod; all else is immutable."""
    existing = (old.ephemeral_containers if old else None) or ()
    names = {container.name for container in existing}
    return [
        container
        for container in pod.containers
        if container.kind == "ephemeralContainers" and container.spec.name not in names
    ]


def claimed_volumes(pod: Pod) -> frozenset[str]:
    """Return the names of the volumes from claims, those of ``volumeClaimTemplates`` among them."""
    named = {
        str(volume.get("name"))
        for volume in pod.spec.volumes or ()
        if "persistentVolumeClaim" in volume or "ephemeral" in volume
    }
    if pod.template.root:
        for _, holder in pod.template.holders():
            for _, template in mappings(holder.get("volumeClaimTemplates")):
                named.add(str(mapping(template.get("metadata")).get("name")))
    return frozenset(named)


def volumes_of_root(pod: Pod) -> frozenset[str]:
    """Return the names of the volumes that belong to root without an ``fsGroup``.

    These are volumes from claims, and inline CSI volumes whose mount options name no owner.
    """
    inline = {
        str(volume.get("name"))
        for volume in pod.spec.volumes or ()
        if isinstance(source := volume.get("csi"), core_v1.VolumeSource)
        and source.read_only is not True
        and not _SETS_OWNER.search(str(mapping(source.volume_attributes).get("mountOptions") or ""))
    }
    return claimed_volumes(pod) | inline


def _containers(spec: PodSpec) -> tuple[Container, ...]:
    by_kind: tuple[tuple[ContainerKind, list[core_v1.ContainerSpec] | None], ...] = (
        ("initContainers", spec.init_containers),
        ("containers", spec.containers),
        ("ephemeralContainers", spec.ephemeral_containers),
    )
    return tuple(
        [
            Container(own, kind, position, own.security_context or NO_CONTEXT)
            for kind, specs in by_kind
            if specs
            for position, own in enumerate(specs)
        ]
    )


def _device_resources(containers: Iterable[Container]) -> tuple[DeviceResource, ...]:
    """Return the device resources of the containers.

    Device resources carry a domain (``nvidia.com/gpu``), the others do not. Ephemeral containers
    may not have resources, so theirs do not count.
    """
    found: list[DeviceResource] = []
    for container in containers:
        resources = container.spec.resources
        if resources is None or container.kind == "ephemeralContainers":
            continue
        limits, requests = resources.limits or {}, resources.requests or {}
        for name in limits | requests:
            if "/" in name:
                found.append(_device_resource(container, name, limits, requests))  # noqa: PERF401
    return tuple(found)


def _device_resource(
    container: Container, name: str, limits: Mapping[str, Any], requests: Mapping[str, Any]
) -> DeviceResource:
    given: dict[ResourceSide, Any] = {}
    nanos: dict[ResourceSide, int] = {}
    if name in limits:
        given["limits"] = limits[name]
        nanos["limits"] = parse_quantity(limits[name])
    if name in requests:
        given["requests"] = requests[name]
        nanos["requests"] = parse_quantity(requests[name])
    return DeviceResource(container, name, given, nanos)


class RequestingContainer(Protocol):
    """What the peak depends on: ``core_v1.ContainerSpec`` has it."""

    @property
    def resources(self) -> ResourceRequirements | None: ...

    @property
    def restart_policy(self) -> str | None: ...


def device_peaks(
    init_containers: Iterable[RequestingContainer] | None,
    containers: Iterable[RequestingContainer] | None,
) -> dict[str, int]:
    """Return how many devices of each extended resource the scheduler reserves for the Pod.

    Raises:
        InvalidQuantityError: (policies.kubernetes.quantity) what is requested is no quantity.
    """
    return _peaks(init_containers, containers, _devices)


def host_peaks(spec: PodSpec) -> tuple[int, int]:
    """Return the CPU and the memory that the scheduler reserves for the Pod, in nanos.

    Requests of the Pod itself count before those of its containers, and the overhead of its
    RuntimeClass comes on top. A template may have limits alone, which API servers copy to requests.
    Sources: ``k8s.io/component-helpers/resource`` (``PodRequests``) and ``defaultPodRequests`` in
    ``k8s.io/kubernetes/pkg/apis/core/v1/defaults.go``.

    Raises:
        InvalidQuantityError: (policies.kubernetes.quantity) what is requested is no quantity.
    """
    peaks = _peaks(spec.init_containers, spec.containers, _host_requests)
    own = spec.resources or ResourceRequirements()
    peaks = dict(_of_host(own.limits)) | peaks | dict(_of_host(own.requests))
    for name, overhead in _of_host(spec.overhead):
        peaks[name] = peaks.get(name, 0) + overhead
    return peaks.get("cpu", 0), peaks.get("memory", 0)


def _peaks(
    init_containers: Iterable[RequestingContainer] | None,
    containers: Iterable[RequestingContainer] | None,
    requests: Callable[[RequestingContainer], Iterator[tuple[str, int]]],
) -> dict[str, int]:
    """Return what the scheduler reserves for a Pod with these requests of its containers.

    Containers and sidecars run together; another init container runs before them, along with the
    sidecars that were started by then.
    """
    running: dict[str, int] = {}
    peaks: dict[str, int] = {}
    for container in init_containers or ():
        for name, count in requests(container):
            needed = running.get(name, 0) + count
            peaks[name] = max(peaks.get(name, 0), needed)
            if container.restart_policy == "Always":
                running[name] = needed
    for container in containers or ():
        for name, count in requests(container):
            running[name] = running.get(name, 0) + count
    return peaks | {name: max(peaks.get(name, 0), count) for name, count in running.items()}


def _devices(container: RequestingContainer) -> Iterator[tuple[str, int]]:
    if container.resources is not None:
        quantities = (container.resources.limits or {}) | (container.resources.requests or {})
        for name, quantity in quantities.items():
            if "/" in name:
                yield name, -(-parse_quantity(quantity) // NANOS)


def _host_requests(container: RequestingContainer) -> Iterator[tuple[str, int]]:
    if container.resources is not None:
        yield from _of_host(
            (container.resources.limits or {}) | (container.resources.requests or {})
        )


def _of_host(quantities: Mapping[str, Any] | None) -> Iterator[tuple[str, int]]:
    """Yield CPU and memory, in nanos."""
    for name in ("cpu", "memory"):
        if quantities and name in quantities:
            yield name, parse_quantity(quantities[name])
