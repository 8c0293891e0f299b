"""DeviceClasses and ResourceSlices: what DRA drivers publish, by what placement depends on.

A slice has up to 128 devices with up to 32 attributes each. Of a device, only the DeviceClasses
stay that select it, so a new selector needs the slices again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from policies.kubernetes import cel
from policies.kubernetes.core_v1 import NodeSelector
from policies.kubernetes.quantity import InvalidQuantityError, parse_quantity
from policies.kubernetes.resource_slices import (
    MOST_DEVICES,
    Counters,
    Device,
    Placement,
    PublishedDevices,
    ResourceSlice,
    TaintedDevices,
)
from policies.kubernetes.scheduling import FENCING_EFFECTS, term_alternatives
from policies.policy import Policy
from webhook.kube.collection import Collection, Identity, LabeledMetadata, Store
from webhook.kube.nodes import NODES, NodeStore, TaintObject

JSON: TypeAlias = dict[str, Any]
_Values: TypeAlias = tuple[frozenset[str], tuple[tuple[str, str, Any], ...]]
"""The domains of all attributes or capacities, and those that count: domain, name and value."""


class CELSelector(msgspec.Struct, frozen=True):
    expression: str = ""


class DeviceSelector(msgspec.Struct, frozen=True):
    """A selector of another kind than CEL is one of a later Kubernetes."""

    cel: CELSelector | None = None


class DeviceClassSpec(msgspec.Struct, frozen=True, rename="camel"):
    extended_resource_name: str | None = None
    selectors: tuple[DeviceSelector, ...] | None = None

    @property
    def expressions(self) -> tuple[str, ...]:
        """The CEL expressions that a device of the class meets."""
        return tuple(each.cel.expression if each.cel else "" for each in self.selectors or ())


class DeviceClassObject(msgspec.Struct, frozen=True):
    """``resource.k8s.io/v1`` ``DeviceClass``."""

    metadata: LabeledMetadata
    spec: DeviceClassSpec = DeviceClassSpec()


class Attribute(msgspec.Struct, frozen=True):
    """``DeviceAttribute``. A value of another type, such as a list, is left out."""

    text: str | None = msgspec.field(default=None, name="string")
    flag: bool | None = msgspec.field(default=None, name="bool")
    number: int | None = msgspec.field(default=None, name="int")
    version: str | None = None

    @property
    def value(self) -> Any:
        """The value in CEL."""
        if self.version is not None:
            return cel.Version(self.version)
        found = (each for each in (self.text, self.flag, self.number) if each is not None)
        return next(found, cel.UNKNOWN)


class RequestPolicy(msgspec.Struct, frozen=True):
    """What a request takes of a capacity that it does not name."""

    default: Any = None


class Amount(msgspec.Struct, frozen=True, rename="camel"):
    """``DeviceCapacity`` or ``Counter``."""

    value: Any = 0
    request_policy: RequestPolicy | None = None


class CounterSet(msgspec.Struct, frozen=True, rename="camel"):
    """``CounterSet`` or ``DeviceCounterConsumption``, which name themselves differently."""

    name: str = ""
    counter_set: str = ""
    counters: dict[str, Amount] = {}


class DeviceObject(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    attributes: dict[str, Attribute] | None = None
    capacity: dict[str, Amount] | None = None
    taints: list[TaintObject] | None = None
    consumes_counters: list[CounterSet] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    allow_multiple_allocations: bool | None = None

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


class ResourceSliceSpec(msgspec.Struct, frozen=True, rename="camel"):
    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: list[DeviceObject] | None = None
    shared_counters: list[CounterSet] | None = None


class ResourceSliceObject(msgspec.Struct, frozen=True):
    """``resource.k8s.io/v1`` ``ResourceSlice``."""

    metadata: Identity
    spec: ResourceSliceSpec = ResourceSliceSpec()


class DeviceTaintSelector(msgspec.Struct, frozen=True):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(msgspec.Struct, frozen=True, rename="camel"):
    taint: TaintObject
    device_selector: DeviceTaintSelector | None = None


class DeviceTaintRuleObject(msgspec.Struct, frozen=True):
    """``resource.k8s.io/v1`` ``DeviceTaintRule``, of Kubernetes 1.37."""

    metadata: Identity
    spec: DeviceTaintRuleSpec


_API = "/apis/resource.k8s.io/v1"
DEVICE_CLASSES = Collection(
    "deviceclasses", f"{_API}/deviceclasses", DeviceClassObject, optional=True
)
RESOURCE_SLICES = Collection(
    "resourceslices", f"{_API}/resourceslices", ResourceSliceObject, optional=True
)


TAINT_RULES = Collection(
    "devicetaintrules",
    f"{_API}/devicetaintrules",
    DeviceTaintRuleObject,
    optional=True,
    may_be_forbidden=True,
)


# Most clusters have a few kinds of devices. A selector that reads what identifies a device makes
# each a kind of its own.
_MOST_KINDS = 10_000


class SliceStore:
    """Keeps what DRA drivers publish for the nodes of a store."""

    def __init__(self, nodes: NodeStore, *, keeps_products: bool = False) -> None:
        self.published = PublishedDevices()
        self.products: dict[str, set[str]] = {}
        """By node, the models that drivers name, if they are kept."""
        self._keeps_products = keeps_products
        self._nodes = nodes
        self._selectors = _Selectors({})
        self._parts: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        """Equal parts of slices: the devices of most nodes are alike."""
        nodes.follow(self.published)

    def use(self, classes: Mapping[str, DeviceClassObject], resources: Mapping[str, str]) -> bool:
        """Take over the DeviceClasses, and the class of each extended resource.

        Return whether the devices must be read again, because other ones are selected.
        """
        provided: dict[str, tuple[str, ...]] = {}
        for resource, device_class in resources.items():
            provided[device_class] = (*provided.get(device_class, ()), resource)
        if provided != self.published.resources:
            self.published.resources = provided
            self._nodes.publish([""])
        wanted = {name: item.spec.expressions for name, item in classes.items()}
        if wanted == self._selectors.expressions:
            return False
        self._selectors = _Selectors(wanted)
        self._parts.clear()
        return len(self.published) > 0

    def put(self, item: ResourceSliceObject, /) -> None:
        if self._keeps_products:
            found = self.products.setdefault(item.spec.node_name or "", set())
            found.update(name for each in item.spec.devices or () if (name := each.product))
        self._nodes.publish(self.published.put(self._read(item)))

    def remove(self, name: str, /) -> None:
        self._nodes.publish(self.published.remove(name))

    def names(self) -> Iterable[str]:
        return list(self.published.names())

    def __len__(self) -> int:
        return len(self.published)

    @property
    def problems(self) -> list[str]:
        """A sentence for each DeviceClass with a selector that gpufence cannot evaluate."""
        return [
            f"gpufence cannot evaluate the selector of DeviceClass {name} for some devices "
            f"({' && '.join(self._selectors.expressions[name])}), and takes them for its devices"
            for name in sorted(self._selectors.unevaluated)
        ]

    def _read(self, item: ResourceSliceObject) -> ResourceSlice:
        spec = item.spec
        own = None if spec.per_device_node_selection else _placement(spec)
        return ResourceSlice(
            item.metadata.name,
            spec.driver,
            spec.pool.name,
            spec.pool.generation,
            spec.pool.resource_slice_count,
            own,
            self._shared(tuple(self._devices(spec))),
            self._shared(_counters(spec.shared_counters)),
        )

    def _devices(self, spec: ResourceSliceSpec) -> Iterator[Device]:
        for device in spec.devices or ():
            yield Device(
                device.name,
                self._selectors.classes_of(spec.driver, device),
                any(taint.effect in FENCING_EFFECTS for taint in device.taints or ()),
                _shares(device),
                _counters(device.consumes_counters),
                _placement(device) if spec.per_device_node_selection else None,
            )

    def _shared(self, part: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return an equal part that is kept already, if there is one."""
        try:
            found: tuple[Any, ...] = self._parts.setdefault(part, part)
        except TypeError:
            # It selects nodes by labels, and is one of few.
            return part
        return found


class _Selectors:
    """The expressions of DeviceClasses, and the classes of the devices that were seen."""

    def __init__(self, expressions: Mapping[str, tuple[str, ...]]) -> None:
        self.expressions = expressions
        self.unevaluated: set[str] = set()
        self._parsed = {
            name: [cel.Expression(text) for text in texts] for name, texts in expressions.items()
        }
        parsed = [each for of_class in self._parsed.values() for each in of_class]
        self._names: frozenset[str] | None = frozenset()
        for each in parsed:
            known = self._names is not None and each.names is not None
            self._names = self._names | each.names if known else None  # type: ignore[operator]
        self._found: dict[Any, frozenset[str]] = {}

    def classes_of(self, driver: str, device: DeviceObject) -> frozenset[str]:
        """Return the DeviceClasses that select the device, or may do so."""
        attributes = self._named(device.attributes, driver)
        capacity = self._named(device.capacity, driver)
        multiple = device.allow_multiple_allocations
        key = (driver, multiple, attributes, capacity)
        found = self._found.get(key)
        if found is None:
            scope = {"device": _variable(driver, bool(multiple), attributes, capacity)}
            found = frozenset(name for name in self._parsed if self._selects(name, scope))
            if len(self._found) > _MOST_KINDS:
                self._found.clear()
            self._found[key] = found
        return found

    def _named(self, values: Mapping[str, Any] | None, driver: str) -> _Values:
        """Return the domains of the values, and the values that a selector may read, in an order.

        The domain of a name is the driver's unless the name has one.
        """
        split = [(*_split(name, driver), value) for name, value in sorted((values or {}).items())]
        known = [each for each in split if self._names is None or each[1] in self._names]
        return frozenset(domain for domain, _, _ in split), tuple(known)

    def _selects(self, name: str, scope: Mapping[str, Any]) -> bool:
        is_unknown = False
        for expression in self._parsed[name]:
            result = expression.evaluate(scope)
            if result is cel.UNKNOWN:
                is_unknown = True
            elif result is not True:
                return False
        if is_unknown:
            self.unevaluated.add(name)
        return True


class TaintRuleStore:
    """Keeps which devices the rules of administrators taint."""

    def __init__(self, nodes: NodeStore, published: PublishedDevices) -> None:
        self._nodes = nodes
        self._published = published

    def put(self, item: DeviceTaintRuleObject, /) -> None:
        selector, devices = item.spec.device_selector, None
        # Without a selector, a rule selects no device.
        if selector is not None and item.spec.taint.effect in FENCING_EFFECTS:
            names = (selector.driver, selector.pool, selector.device)
            devices = TaintedDevices(*(name or "" for name in names))
        self._nodes.publish(self._published.taint(item.metadata.name, devices))

    def remove(self, name: str, /) -> None:
        self._nodes.publish(self._published.taint(name, None))

    def names(self) -> Iterable[str]:
        return list(self._published.rules())

    def __len__(self) -> int:
        return len(self._published.rules())


class DeviceClassStore:
    """Keeps the DeviceClasses, and lets ``follow`` know what they select and provide."""

    def __init__(
        self, follow: Callable[[Mapping[str, DeviceClassObject], Mapping[str, str]], None]
    ) -> None:
        self._follow = follow
        self._classes: dict[str, DeviceClassObject] = {}
        self.by_resource: Mapping[str, str] = {}
        """The DeviceClass of each extended resource."""

    def put(self, item: DeviceClassObject, /) -> None:
        self._classes[item.metadata.name] = item
        self._changed()

    def remove(self, name: str, /) -> None:
        if self._classes.pop(name, None) is not None:
            self._changed()

    def names(self) -> Iterable[str]:
        return list(self._classes)

    def __len__(self) -> int:
        return len(self._classes)

    @property
    def providers(self) -> dict[str, list[str]]:
        """The classes by the extended resource that they provide; without one, an empty name."""
        found: dict[str, list[str]] = {}
        for name, item in self._classes.items():
            found.setdefault(item.spec.extended_resource_name or "", []).append(name)
        return found

    def _changed(self) -> None:
        self.by_resource = classes_by_resource(self._classes)
        self._follow(self._classes, self.by_resource)


class NodeOffers:
    """The stores that tell which devices nodes offer, by device plugins and by DRA drivers.

    ``outdated`` is called when the ResourceSlices must be read again: DeviceClasses select other
    devices.
    """

    def __init__(self, policy: Policy | None, outdated: Callable[[], None]) -> None:
        self._outdated = outdated
        self.nodes = NodeStore(policy)
        self.slices = SliceStore(self.nodes, keeps_products=policy is None)
        self.device_classes = DeviceClassStore(self._follow)
        self.published: dict[Collection[Any], Store[Any]] = {
            # Before the slices, which are read by what the classes select.
            DEVICE_CLASSES: self.device_classes,
            RESOURCE_SLICES: self.slices,
            TAINT_RULES: TaintRuleStore(self.nodes, self.slices.published),
        }
        """The stores of what DRA drivers publish, which no cluster needs to have."""
        self.stores: dict[Collection[Any], Store[Any]] = {NODES: self.nodes, **self.published}

    def _follow(
        self, classes: Mapping[str, DeviceClassObject], by_resource: Mapping[str, str]
    ) -> None:
        if self.slices.use(classes, by_resource):
            self._outdated()


def _variable(
    driver: str,
    multiple: bool,
    attributes: _Values,
    capacity: _Values,
) -> JSON:
    """Return the variable ``device`` of a selector."""
    return {
        "driver": driver,
        "allowMultipleAllocations": multiple,
        "attributes": _by_domain(attributes, lambda attribute: attribute.value),
        "capacity": _by_domain(capacity, _quantity),
    }


def _split(name: str, driver: str) -> tuple[str, str]:
    domain, _, own = name.rpartition("/")
    return domain or driver, own


def _by_domain(values: _Values, read: Callable[[Any], Any]) -> cel.Attributes:
    domains, known = values
    found = cel.Attributes({domain: {} for domain in domains})
    for domain, name, value in known:
        found[domain][name] = read(value)
    return found


def _quantity(amount: Amount) -> Any:
    try:
        return cel.Quantity(parse_quantity(amount.value))
    except InvalidQuantityError:
        return cel.UNKNOWN


def _shares(device: DeviceObject) -> int:
    """Return how many requests that name no capacity the device can meet at once.

    Source: ``CmpRequestOverCapacity`` in ``k8s.io/dynamic-resource-allocation``: a capacity without
    a default is taken as a whole.
    """
    if not device.allow_multiple_allocations:
        return 1
    shares = MOST_DEVICES
    for amount in (device.capacity or {}).values():
        value, policy = parse_quantity(amount.value), amount.request_policy
        taken = (
            value if policy is None or policy.default is None else parse_quantity(policy.default)
        )
        if taken > 0:
            shares = min(shares, value // taken)
    return shares


def _counters(sets: Iterable[CounterSet] | None) -> Counters:
    return tuple(
        (each.name or each.counter_set, name, parse_quantity(amount.value))
        for each in sets or ()
        for name, amount in sorted(each.counters.items())
    )


def _placement(of: ResourceSliceSpec | DeviceObject) -> Placement:
    terms = of.node_selector.node_selector_terms if of.node_selector else None
    matching = tuple(each for each in term_alternatives(terms or ()) if each.parses)
    return Placement(of.node_name or "", bool(of.all_nodes), matching)


def classes_by_resource(classes: Mapping[str, DeviceClassObject]) -> Mapping[str, str]:
    """Return the DeviceClass of each extended resource: the newest one, then the lower name.

    Source: ``k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache``.
    """
    # Timestamps are RFC 3339 in UTC and whole seconds, and sort as text.
    by_name = sorted(classes.values(), key=lambda item: item.metadata.name, reverse=True)
    by_age = sorted(by_name, key=lambda item: item.metadata.creation_timestamp or "")
    return {
        resource: item.metadata.name
        for item in by_age
        if (resource := item.spec.extended_resource_name)
    }
