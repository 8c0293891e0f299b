"""ResourceSlices and DeviceTaintRules, by what placement depends on.

A slice has up to 128 devices with up to 32 attributes each. Of a device, only the DeviceClasses
stay that select it, so a new selector needs the slices again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import msgspec

from policies.kubernetes.claims import HostShare, HostShares
from policies.kubernetes.core_v1 import NodeSelector
from policies.kubernetes.quantity import InvalidQuantityError, parse_quantity
from policies.kubernetes.scheduling import FENCING_EFFECTS, term_alternatives
from webhook.devices import cel
from webhook.devices.nodes import TaintObject
from webhook.devices.published import (
    Counters,
    Device,
    Placed,
    Placement,
    PoolID,
    ResourceSlice,
    TaintedDevices,
)
from webhook.kube.collection import Collection, Identity

MOST_KINDS = 10_000
"""Most clusters have a few kinds of devices. A selector that reads what identifies a device makes
each a kind of its own."""

_MOST_DEVICES = 32
"""The most devices that a claim can get (``AllocationResultsMaxSize``)."""


class Attribute(msgspec.Struct, frozen=True, gc=False):
    """``DeviceAttribute``. A value of another type, such as a list, is left out."""

    text: str | None = msgspec.field(default=None, name="string")
    flag: bool | None = msgspec.field(default=None, name="bool")
    number: int | None = msgspec.field(default=None, name="int")
    version: str | None = None

    @property
    def in_cel(self) -> Any:
        """The value of a variable of CEL."""
        if self.version is not None:
            return cel.Version(self.version)
        found = (each for each in (self.text, self.flag, self.number) if each is not None)
        return next(found, cel.UNKNOWN)


class RequestPolicy(msgspec.Struct, frozen=True):
    """What a request takes of a capacity that it does not name."""

    default: str | int | float | None = None


class Amount(msgspec.Struct, frozen=True, rename="camel"):
    """``DeviceCapacity`` or ``Counter``."""

    value: str | int | float = 0
    request_policy: RequestPolicy | None = None

    @property
    def in_cel(self) -> Any:
        """The value of a variable of CEL."""
        try:
            return cel.Quantity(parse_quantity(self.value))
        except InvalidQuantityError:
            return cel.UNKNOWN


class CounterSet(msgspec.Struct, frozen=True, rename="camel"):
    """``CounterSet`` or ``DeviceCounterConsumption``, which name themselves differently."""

    name: str = ""
    counter_set: str = ""
    counters: dict[str, Amount] = {}
    compatibility_groups: frozenset[str] | None = None


class NodeSelection(msgspec.Struct, frozen=True, rename="camel"):
    """The nodes from which a device, or each of a slice, is accessible."""

    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None


class AllocatableMapping(msgspec.Struct, frozen=True, rename="camel"):
    """``NodeAllocatableMapping``: by the number of devices, or by a capacity of them."""

    device_multiplier: str | int | float = 0
    capacity_key: str = ""
    capacity_multiplier: str | int | float = 1


class AllocatableOverhead(msgspec.Struct, frozen=True, rename="camel"):
    per_pod: str | int | float = 0
    per_container: str | int | float = 0


class AllocatableResource(msgspec.Struct, frozen=True):
    """``NodeAllocatableResource``: what a device takes of a resource of its node."""

    mapping: AllocatableMapping = AllocatableMapping()
    overhead: AllocatableOverhead = AllocatableOverhead()


class DeviceObject(NodeSelection, frozen=True, rename="camel"):
    name: str = ""
    attributes: dict[str, Attribute] | None = None
    capacity: dict[str, Amount] | None = None
    taints: list[TaintObject] | None = None
    consumes_counters: list[CounterSet] | None = None
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: dict[str, AllocatableResource] | None = None

    @property
    def product(self) -> str:
        """The model, as the drivers of NVIDIA, AMD and Intel name it; empty without one."""
        for key, attribute in (self.attributes or {}).items():
            if key.rpartition("/")[2] in ("productName", "model"):
                return attribute.text or ""
        return ""


class ResourcePool(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(NodeSelection, frozen=True, rename="camel"):
    driver: str = ""
    pool: ResourcePool = ResourcePool()
    per_device_node_selection: bool | None = None
    devices: list[DeviceObject] | None = None
    shared_counters: list[CounterSet] | None = None


class ResourceSliceObject(msgspec.Struct, frozen=True):
    """``resource.k8s.io/v1`` ``ResourceSlice``."""

    metadata: Identity
    spec: ResourceSliceSpec = ResourceSliceSpec()


class DeviceTaintRuleSpec(msgspec.Struct, frozen=True, rename="camel"):
    taint: TaintObject
    device_selector: TaintedDevices | None = None


class DeviceTaintRuleObject(msgspec.Struct, frozen=True):
    """``resource.k8s.io/v1`` ``DeviceTaintRule``, of Kubernetes 1.37."""

    metadata: Identity
    spec: DeviceTaintRuleSpec


RESOURCE_SLICES = Collection(
    "resourceslices", "/apis/resource.k8s.io/v1/resourceslices", ResourceSliceObject, optional=True
)
TAINT_RULES = Collection(
    "devicetaintrules",
    "/apis/resource.k8s.io/v1/devicetaintrules",
    DeviceTaintRuleObject,
    optional=True,
    may_be_forbidden=True,
)


def read_slice(
    item: ResourceSliceObject, classes_of: Callable[[str, DeviceObject], frozenset[str]]
) -> ResourceSlice:
    """Return what is kept of a slice; ``classes_of`` returns the DeviceClasses of a device."""
    spec = item.spec
    devices = [
        Device(
            each.name,
            classes_of(spec.driver, each),
            _is_fenced(each.taints),
            _shares(each),
            _counters(each.consumes_counters),
            tuple(
                (own.counter_set, own.compatibility_groups or frozenset())
                for own in each.consumes_counters or ()
            ),
            _host_shares(each),
        )
        for each in spec.devices or ()
    ]
    placed: Placed = ((_placement(spec), _shared(tuple(devices))),)
    if spec.per_device_node_selection:
        of_each = zip(map(_placement, spec.devices or ()), devices, strict=True)
        placed = tuple((placement, (device,)) for placement, device in of_each)
    return ResourceSlice(
        item.metadata.name,
        PoolID(spec.driver, spec.pool.name),
        spec.pool.generation,
        spec.pool.resource_slice_count,
        placed,
        _counters(spec.shared_counters),
    )


def tainted_by(item: DeviceTaintRuleObject) -> TaintedDevices | None:
    """Return the devices that a rule of an administrator taints, if it taints any."""
    # Without a selector, a rule selects no device.
    return item.spec.device_selector if item.spec.taint.effect in FENCING_EFFECTS else None


@lru_cache(MOST_KINDS)
def _shared(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Return equal devices that are kept already: those of most nodes are alike."""
    return devices


def _is_fenced(taints: Iterable[TaintObject] | None) -> bool:
    return any(taint.effect in FENCING_EFFECTS for taint in taints or ())


def _shares(device: DeviceObject) -> int:
    """Return how many requests that name no capacity the device can meet at once.

    Source: ``CmpRequestOverCapacity`` in ``k8s.io/dynamic-resource-allocation``: a capacity without
    a default is taken as a whole.
    """
    if not device.allow_multiple_allocations:
        return 1
    shares = _MOST_DEVICES
    for amount in (device.capacity or {}).values():
        if (taken := _taken(amount)) > 0:
            shares = min(shares, parse_quantity(amount.value) // taken)
    return shares


def _taken(amount: Amount) -> int:
    """Return what a request takes of a capacity that it does not name."""
    policy = amount.request_policy
    default = None if policy is None else policy.default
    return parse_quantity(amount.value if default is None else default)


def _host_shares(device: DeviceObject) -> HostShares:
    shares = []
    for name, given in sorted((device.node_allocatable_resources or {}).items()):
        own, key = given.mapping, given.mapping.capacity_key
        per_device = parse_quantity(own.device_multiplier) + parse_quantity(given.overhead.per_pod)
        share = HostShare(name, per_device, parse_quantity(given.overhead.per_container))
        # Only allocations of devices for several requests consume a capacity.
        if (
            key
            and device.allow_multiple_allocations
            and (amount := (device.capacity or {}).get(key))
        ):
            multiplier = parse_quantity(own.capacity_multiplier)
            share = share._replace(capacity=key, multiplier=multiplier, consumed=_taken(amount))
        shares.append(share)
    return tuple(shares)


def _counters(sets: Iterable[CounterSet] | None) -> Counters:
    return tuple(
        ((each.name or each.counter_set, name), parse_quantity(amount.value))
        for each in sets or ()
        for name, amount in sorted(each.counters.items())
    )


def _placement(of: NodeSelection) -> Placement:
    terms = of.node_selector.node_selector_terms if of.node_selector else None
    matching = tuple(each for each in term_alternatives(terms or ()) if each.parses)
    return Placement(of.node_name or "", bool(of.all_nodes), matching)
