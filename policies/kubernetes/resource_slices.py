"""The devices that DRA drivers publish in ResourceSlices, as kube-scheduler finds them.

A node offers a device by each name under which a Pod can request it: the DeviceClass, by its
implicit resource name, and the extended resource that the class provides.

Sources: ``k8s.io/dynamic-resource-allocation/structured/internal`` (``GatherPools``, ``buildPool``
and ``checkAvailableCounters``), and
``k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from policies.kubernetes.claims import implicit_resource
from policies.kubernetes.scheduling import Alternative, accepts

_PoolID: TypeAlias = tuple[str, str]
"""The names of the driver and of the pool."""

Counters: TypeAlias = tuple[tuple[str, str, int], ...]
"""Amounts of shared counters: the name of the set, the name of the counter, and nanos."""


class Placement(NamedTuple):
    """The nodes from which devices are accessible: one by its name, all, or those selected."""

    node: str = ""
    all_nodes: bool = False
    terms: tuple[Alternative, ...] = ()

    def includes(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether the node is one of them."""
        if self.node:
            return name == self.node
        return self.all_nodes or any(accepts(term, name, labels) for term in self.terms)


MOST_DEVICES = 32
"""The most devices that a claim can get (``AllocationResultsMaxSize``)."""


class Device(NamedTuple):
    """A device, by what its allocation depends on."""

    name: str
    classes: frozenset[str]
    """The DeviceClasses whose selectors the device meets."""
    is_tainted: bool = False
    """Whether a taint in the slice keeps it from being allocated."""
    shares: int = 1
    """How many requests that name no capacity the device can meet at once (KEP-5075)."""
    consumes: Counters = ()
    placement: Placement | None = None
    """The nodes of the device, if each device of the slice has its own."""


class TaintedDevices(NamedTuple):
    """The devices that a ``DeviceTaintRule`` taints. An empty name stands for all."""

    driver: str
    pool: str
    device: str

    def includes(self, pool: _PoolID) -> bool:
        """Return whether devices of the pool may be among them."""
        return self.driver in ("", pool[0]) and self.pool in ("", pool[1])


@dataclass(frozen=True, slots=True)
class ResourceSlice:
    """A part of a pool of devices. ``slice_count`` is the number of parts."""

    name: str
    driver: str
    pool: str
    generation: int
    slice_count: int
    placement: Placement | None
    """``None`` if each device has its own."""
    devices: tuple[Device, ...] = ()
    counters: Counters = ()
    """The shared counters of the pool. A slice has these or devices."""

    @property
    def node(self) -> str:
        """The only node that the slice is about; empty if it may be about several."""
        return self.placement.node if self.placement and not self.counters else ""

    def devices_on(self, name: str, labels: Mapping[str, str]) -> Sequence[Device] | None:
        """Return the devices that are accessible from the node; ``None`` if it is another's."""
        if self.counters:
            return ()
        if self.placement is not None:
            return self.devices if self.placement.includes(name, labels) else None
        return [
            device
            for device in self.devices
            if device.placement and device.placement.includes(name, labels)
        ] or None

    def provided_by(self, name: str) -> Iterable[Device]:
        """Return the devices that the node itself provides: they are accessible from no other."""
        if self.placement is not None:
            return self.devices if self.placement.node == name else ()
        return [each for each in self.devices if each.placement and each.placement.node == name]


class PublishedDevices:
    """The ResourceSlices of a cluster, and the devices that each node offers through them."""

    def __init__(self) -> None:
        self._slices: dict[str, ResourceSlice] = {}
        self._pools: defaultdict[_PoolID, dict[str, ResourceSlice]] = defaultdict(dict)
        self._by_node: defaultdict[str, Counter[_PoolID]] = defaultdict(Counter)
        """The pools with slices of the node, and how many. Those of several nodes have no name."""
        self.resources: Mapping[str, tuple[str, ...]] = {}
        """By DeviceClass, the extended resources that it provides."""
        self._rules: dict[str, TaintedDevices] = {}

    def __len__(self) -> int:
        return len(self._slices)

    def names(self) -> Collection[str]:
        """Return the names of the slices."""
        return self._slices.keys()

    def put(self, item: ResourceSlice) -> frozenset[str]:
        """Add or replace a slice. Return the nodes that may offer other devices now.

        An empty name stands for every node.
        """
        if self._slices.get(item.name) == item:
            return frozenset()
        changed = self.remove(item.name)
        self._slices[item.name] = item
        pool = (item.driver, item.pool)
        self._pools[pool][item.name] = item
        self._by_node[item.node][pool] += 1
        return changed | self._nodes_of(pool)

    def remove(self, name: str) -> frozenset[str]:
        """Remove a slice, and return the nodes as ``put`` does."""
        item = self._slices.pop(name, None)
        if item is None:
            return frozenset()
        pool = (item.driver, item.pool)
        nodes = self._nodes_of(pool)
        del self._pools[pool][name]
        if not self._pools[pool]:
            del self._pools[pool]
        pools = self._by_node[item.node]
        pools[pool] -= 1
        if not pools[pool]:
            del pools[pool]
        if not pools:
            del self._by_node[item.node]
        return nodes

    def rules(self) -> Collection[str]:
        """Return the names of the rules that taint devices."""
        return self._rules.keys()

    def taint(self, rule: str, devices: TaintedDevices | None) -> frozenset[str]:
        """Let a rule taint these devices, or none. Return the nodes as ``put`` does."""
        before = self._rules.pop(rule, None)
        if devices is not None:
            self._rules[rule] = devices
        changed = {each for each in (before, devices) if each is not None and before != devices}
        pools = [pool for pool in self._pools if any(each.includes(pool) for each in changed)]
        return frozenset[str]().union(*map(self._nodes_of, pools))

    def offers_of(self, node: str, labels: Mapping[str, str]) -> dict[str, int]:
        """Return how many devices the node offers by each name; 0 if none can be allocated now.

        The count is exact for devices that stand alone. Of those that share counters, no more can
        be allocated at once. A device that requests share counts its shares. One request gets one
        of them.
        """
        offers: dict[str, int] = {}
        for pool in self._pools_of(node):
            for device_class, count in self._offers_of_pool(pool, node, labels).items():
                for name in self._names(device_class):
                    offers[name] = offers.get(name, 0) + count
        return offers

    def provided_by(self, node: str) -> frozenset[str]:
        """Return the names of the devices that the node itself provides.

        They count whether or not they can be allocated now, also if newer slices of their pool are
        about other nodes: any account that may create slices could write one.
        """
        slices = (item for pool in self._pools_of(node) for item in self._pools[pool].values())
        return self.names_of(device for item in slices for device in item.provided_by(node))

    def names_of(self, devices: Iterable[Device]) -> frozenset[str]:
        """Return the names under which Pods can request the devices."""
        classes = frozenset[str]().union(*(device.classes for device in devices))
        return frozenset(name for each in classes for name in self._names(each))

    def of_several_nodes(self) -> Iterator[ResourceSlice]:
        """Yield the slices whose devices may be accessible from several nodes."""
        for pool in self._by_node.get("", {}):
            yield from (item for item in self._pools[pool].values() if not item.node)

    def _names(self, device_class: str) -> tuple[str, ...]:
        return (implicit_resource(device_class), *self.resources.get(device_class, ()))

    def _pools_of(self, node: str) -> Iterable[_PoolID]:
        return self._by_node.get(node, {}).keys() | self._by_node.get("", {}).keys()

    def _nodes_of(self, pool: _PoolID) -> frozenset[str]:
        return frozenset(item.node for item in self._pools[pool].values())

    def _offers_of_pool(
        self, pool: _PoolID, node: str, labels: Mapping[str, str]
    ) -> dict[str, int]:
        """Return how many devices of the pool can be allocated for a node, by DeviceClass."""
        everywhere = self._pools[pool].values()
        found = [(item, item.devices_on(node, labels)) for item in everywhere]
        newest = max((item.generation for item, own in found if own is not None), default=0)
        current = [item for item in everywhere if item.generation == newest]
        here = [item for item, own in found if own is not None and item.generation == newest]
        devices = [d for item, own in found if item.generation == newest for d in own or ()]
        if not devices:
            return {}
        wanted = here[0].slice_count
        if len(here) != wanted and any(item.generation > newest for item in everywhere):
            # The driver is replacing the slices, and no new one is about this node.
            return {}
        classes = frozenset[str]().union(*(device.classes for device in devices))
        if wanted not in (len(here), len(current)) or not _is_valid(here, current):
            return dict.fromkeys(classes, 0)
        limits = dict(_counters(here))
        tainted = {rule.device for rule in self._rules.values() if rule.includes(pool)}
        usable = [d for d in devices if not (d.is_tainted or {"", d.name} & tainted)]
        return {name: _allocatable(name, usable, limits) for name in classes}


def _is_valid(here: Sequence[ResourceSlice], current: Iterable[ResourceSlice]) -> bool:
    """Return whether the scheduler uses the pool: names are unique, and counters exist.

    Of the slices of a node, all names count, also those of devices for other nodes.
    """
    names = Counter(d.name for item in here if not item.counters for d in item.devices)
    sets = Counter(name for item in here for name in {each[0] for each in item.counters})
    known = {key for key, _ in _counters(here)}
    consumed = {each[:2] for item in current for d in item.devices for each in d.consumes}
    return max(names.values()) == 1 and max(sets.values(), default=1) == 1 and consumed <= known


def _counters(slices: Iterable[ResourceSlice]) -> Iterator[tuple[tuple[str, str], int]]:
    for item in slices:
        for name, counter, amount in item.counters:
            yield (name, counter), amount


def _allocatable(
    device_class: str, devices: Iterable[Device], limits: Mapping[tuple[str, str], int]
) -> int:
    """Return the most requests for a device of the class that can be met at once.

    A device with shares uses its counters once. For each counter, the devices that consume least
    count. To find out which devices fit all counters together is the scheduler's work.
    """
    usable = [d for d in devices if device_class in d.classes]
    usable = [d for d in usable if all(limits[each[:2]] >= each[2] for each in d.consumes)]
    by_set: defaultdict[tuple[str, ...], list[Device]] = defaultdict(list)
    for device in usable:
        by_set[tuple(sorted({name for name, _, _ in device.consumes}))].append(device)
    return sum(_fitting(sharing, limits) for sharing in by_set.values())


def _fitting(devices: list[Device], limits: Mapping[tuple[str, str], int]) -> int:
    """Return the shares of the most devices that fit each counter that they share."""
    fitting = len(devices)
    for key in {each[:2] for device in devices for each in device.consumes}:
        amounts = sorted(_consumed(device, key) for device in devices)
        left, count = limits[key], 0
        for amount in amounts:
            left -= amount
            if left < 0:
                break
            count += 1
        fitting = min(fitting, count)
    return sum(sorted((device.shares for device in devices), reverse=True)[:fitting])


def _consumed(device: Device, key: tuple[str, str]) -> int:
    return sum(amount for name, counter, amount in device.consumes if (name, counter) == key)
