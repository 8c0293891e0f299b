"""The devices that DRA drivers publish in ResourceSlices, as kube-scheduler finds them.

A node offers a device by each name under which a Pod can request it: the DeviceClass, by its
implicit resource name, and the extended resource that the class provides.

Sources: ``k8s.io/dynamic-resource-allocation/structured/internal`` (``GatherPools``, ``buildPool``
and ``checkAvailableCounters``), and
``k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from policies.kubernetes.claims import HostShares, implicit_resource
from policies.kubernetes.scheduling import Alternative, accepts

KeyT = TypeVar("KeyT")


class PoolID(NamedTuple):
    """The identity of a pool of devices."""

    driver: str
    name: str


Counters: TypeAlias = tuple[tuple[tuple[str, str], int], ...]
"""Amounts of shared counters: the names of the set and of the counter, and nanos."""


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


class Device(NamedTuple):
    """A device, by what its allocation depends on."""

    name: str
    classes: frozenset[str]
    """The DeviceClasses whose selectors the device meets."""
    is_tainted: bool = False
    """Whether a taint keeps it from being allocated."""
    shares: int = 1
    """How many requests that name no capacity the device can meet at once (KEP-5075)."""
    consumes: Counters = ()
    groups: tuple[tuple[str, frozenset[str]], ...] = ()
    """The compatibility groups of the device, by the sets of shared counters that it consumes."""
    host: HostShares = ()
    """What it takes of its node when it is allocated."""


Placed: TypeAlias = tuple[tuple[Placement, tuple[Device, ...]], ...]
"""Devices, by the nodes from which they are accessible."""


class TaintedDevices(msgspec.Struct, frozen=True):
    """``DeviceTaintSelector``: the devices that a rule taints. What is empty stands for all."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None

    def includes(self, pool: PoolID) -> bool:
        """Return whether devices of the pool may be among them."""
        return self.driver in ("", None, pool.driver) and self.pool in ("", None, pool.name)


@dataclass(frozen=True, slots=True)
class ResourceSlice:
    """A part of a pool of devices. ``slice_count`` is the number of parts."""

    name: str
    pool: PoolID
    generation: int
    slice_count: int
    placed: Placed = ()
    counters: Counters = ()
    """The shared counters of the pool. A slice has these or devices."""

    @property
    def node(self) -> str:
        """The only node that the slice is about; empty if it may be about several."""
        names = {placement.node for placement, _ in self.placed}
        return names.pop() if len(names) == 1 and not self.counters else ""

    @property
    def devices(self) -> Iterator[Device]:
        """The devices of the slice."""
        return chain.from_iterable(devices for _, devices in self.placed)

    def devices_on(self, name: str, labels: Mapping[str, str]) -> tuple[Device, ...] | None:
        """Return the devices that are accessible from the node; ``None`` if it is another's."""
        if self.counters:
            return ()
        found = [devices for where, devices in self.placed if where.includes(name, labels)]
        return tuple(chain.from_iterable(found)) if found else None

    def provided_by(self, name: str) -> Iterator[Device]:
        """Return the devices that the node itself provides: they are accessible from no other."""
        return chain.from_iterable(devices for where, devices in self.placed if where.node == name)


class _Pool:
    """The slices of a pool of devices."""

    __slots__ = ("_consumed", "_counts", "by_node")

    def __init__(self) -> None:
        self.by_node: dict[str, dict[str, ResourceSlice]] = {}
        """By name, the slices of each node. Those of several nodes are under an empty name."""
        self._counts: dict[tuple[int, int], int] = {}
        """How many slices have this generation and declare so many slices."""
        self._consumed: dict[tuple[int, tuple[str, str]], int] = {}
        """By generation and counter, how many devices consume it."""

    def add(self, item: ResourceSlice) -> None:
        self.by_node.setdefault(item.node, {})[item.name] = item
        self._count(item, 1)

    def remove(self, item: ResourceSlice) -> None:
        del self.by_node[item.node][item.name]
        if not self.by_node[item.node]:
            del self.by_node[item.node]
        self._count(item, -1)

    def _count(self, item: ResourceSlice, change: int) -> None:
        _add(self._counts, (item.generation, item.slice_count), change)
        for device in item.devices:
            for key, _ in device.consumes:
                _add(self._consumed, (item.generation, key), change)

    def of(self, node: str) -> list[ResourceSlice]:
        """Return the slices that may be about the node."""
        return [item for name in (node, "") for item in self.by_node.get(name, {}).values()]

    @property
    def newest(self) -> int:
        """The newest generation."""
        return max((generation for generation, _ in self._counts), default=0)

    def size(self, generation: int) -> int:
        """Return the number of slices of a generation."""
        return sum(count for (own, _), count in self._counts.items() if own == generation)

    def consumed(self, generation: int) -> set[tuple[str, str]]:
        """Return the counters that devices of a generation consume."""
        return {key for own, key in self._consumed if own == generation}

    def outlook(self) -> object:
        """Return what the slices of one node tell about the devices of the others."""
        if len(self.by_node) < 2:
            return None
        declared = {each for each in self._counts if self.size(each[0]) == each[1]}
        return self.newest, declared, {*self._consumed}


def _add(counts: dict[KeyT, int], key: KeyT, change: int) -> None:
    counts[key] = counts.get(key, 0) + change
    if not counts[key]:
        del counts[key]


class PublishedDevices:
    """The ResourceSlices of a cluster, and the devices that each node offers through them."""

    def __init__(self) -> None:
        self._pools: defaultdict[PoolID, _Pool] = defaultdict(_Pool)
        self._by_node: dict[str, tuple[PoolID, ...]] = {}
        """The pools with slices of the node. Those of several nodes have no name."""
        self._rules: list[TaintedDevices] = []
        self.resources: Mapping[str, str] = {}
        """By DeviceClass, the extended resource that it provides."""
        self.host_shares: defaultdict[str, dict[HostShares, int]] = defaultdict(dict)
        """By DeviceClass, what its devices take of their nodes, and how many slices have such."""

    def replace(self, before: ResourceSlice | None, after: ResourceSlice | None) -> set[str]:
        """Put a slice in the place of another of its name; ``None`` stands for no slice.

        Return the nodes that may offer other devices now. An empty name stands for every node.
        """
        changed: set[str] = set()
        outlooks = {each.pool: self._pools[each.pool].outlook() for each in (before, after) if each}
        if before:
            self._pools[before.pool].remove(before)
        if after:
            self._pools[after.pool].add(after)
        for item in filter(None, (before, after)):
            pool = self._pools[item.pool]
            changed.add(item.node)
            if pool.outlook() != outlooks[item.pool]:
                changed |= pool.by_node.keys()
            own = tuple(each for each in self._by_node.pop(item.node, ()) if each != item.pool)
            if item.node in pool.by_node:
                own = (*own, item.pool)
            if own:
                self._by_node[item.node] = own
        for each, change in ((before, -1), (after, 1)):
            for _, devices in each.placed if each else ():
                for device_class, host in _hosts(devices):
                    _add(self.host_shares[device_class], host, change)
        for name in outlooks:
            if not self._pools[name].by_node:
                del self._pools[name]
        return changed

    def taint(self, before: TaintedDevices | None, after: TaintedDevices | None) -> set[str]:
        """Let a rule taint other devices than before. Return the nodes as ``replace`` does."""
        if before:
            self._rules.remove(before)
        if after:
            self._rules.append(after)
        changed = [each for each in (before, after) if each]
        tainted = [name for name in self._pools if any(each.includes(name) for each in changed)]
        return set[str]().union(*(self._pools[name].by_node for name in tainted))

    def offered_by(
        self, node: str, labels: Mapping[str, str]
    ) -> tuple[dict[str, int], frozenset[str]]:
        """Return how many devices the node offers by each name, and which names are its own.

        The number is 0 if none can be allocated now. It is exact for devices that share at most one
        counter. Of others, no more can be allocated at once. A device that requests share counts
        its shares. One request gets one of them.

        Devices that the node itself provides count whether or not they can be allocated now, also
        if newer slices of their pool are about other nodes: any account that may create slices
        could write one.
        """
        pools = {*self._by_node.get(node, ()), *self._by_node.get("", ())}
        slices = (item for pool in pools for item in self._pools[pool].of(node))
        own = self.names_of(device for item in slices for device in item.provided_by(node))
        offers = dict.fromkeys(own, 0)
        for pool in pools:
            for device_class, count in self._offers_of_pool(pool, node, labels).items():
                for name in self._names(device_class):
                    offers[name] = offers.get(name, 0) + count
        # Reports list them in this order.
        return dict(sorted(offers.items())), own

    def names_of(self, devices: Iterable[Device]) -> frozenset[str]:
        """Return the names under which Pods can request the devices."""
        return frozenset(name for each in _classes(devices) for name in self._names(each))

    def of_several_nodes(self) -> Iterator[ResourceSlice]:
        """Yield the slices whose devices may be accessible from several nodes."""
        for pool in self._by_node.get("", ()):
            yield from self._pools[pool].by_node[""].values()

    def _names(self, device_class: str) -> Iterator[str]:
        yield implicit_resource(device_class)
        if device_class in self.resources:
            yield self.resources[device_class]

    def _offers_of_pool(
        self, name: PoolID, node: str, labels: Mapping[str, str]
    ) -> Mapping[str, int]:
        """Return how many devices of the pool can be allocated for a node, by DeviceClass."""
        pool = self._pools[name]
        found = [
            (item, own)
            for item in pool.of(node)
            if (own := item.devices_on(node, labels)) is not None
        ]
        newest = max((item.generation for item, _ in found), default=0)
        here = [item for item, _ in found if item.generation == newest]
        devices = tuple(d for item, own in found if item.generation == newest for d in own)
        if not devices:
            return {}
        wanted = here[0].slice_count
        if len(here) != wanted and pool.newest > newest:
            # The driver is replacing the slices, and no new one is about this node.
            return {}
        is_complete = wanted in (len(here), pool.size(newest))
        if not (is_complete and _is_valid(here, pool.consumed(newest))):
            return dict.fromkeys(_classes(devices), 0)
        tainted = {rule.device or "" for rule in self._rules if rule.includes(name)}
        if tainted:
            devices = tuple(
                each._replace(is_tainted=True) if {"", each.name} & tainted else each
                for each in devices
            )
        return _allocatable(devices, tuple(chain.from_iterable(item.counters for item in here)))


@lru_cache(maxsize=1024)
def _hosts(devices: tuple[Device, ...]) -> frozenset[tuple[str, HostShares]]:
    """Return what devices take of their nodes, by class. Those of most nodes are alike."""
    return frozenset((each, device.host) for device in devices for each in device.classes)


def _classes(devices: Iterable[Device]) -> frozenset[str]:
    return frozenset[str]().union(*(device.classes for device in devices))


def _is_valid(here: Sequence[ResourceSlice], consumed: set[tuple[str, str]]) -> bool:
    """Return whether the scheduler uses the pool: names are unique, and counters exist.

    Of the slices of a node, all names count, also those of devices for other nodes.
    """
    names = [d.name for item in here if not item.counters for d in item.devices]
    sets = [own for item in here for own in {key[0] for key, _ in item.counters}]
    known = {key for item in here for key, _ in item.counters}
    return _are_unique(names) and _are_unique(sets) and consumed <= known


def _are_unique(names: Sequence[Any]) -> bool:
    return len({*names}) == len(names)


@lru_cache(maxsize=1024)
def _allocatable(devices: tuple[Device, ...], counters: Counters) -> Mapping[str, int]:
    """Return the most requests for a device of each class that can be met at once.

    A device with shares uses its counters once. For each counter, the devices that consume least
    count, and for each set of counters, those of one compatibility group. To find out which devices
    fit all of them together is the scheduler's work. Most nodes have equal devices.
    """
    limits = dict(counters)
    by_set: defaultdict[frozenset[str], list[Device]] = defaultdict(list)
    for device in devices:
        if not device.is_tainted and all(limits[key] >= least for key, least in device.consumes):
            by_set[frozenset(own for own, _ in device.groups)].append(device)
    return {
        device_class: sum(
            _fitting([each for each in sharing if device_class in each.classes], limits)
            for sharing in by_set.values()
        )
        for device_class in _classes(devices)
    }


def _fitting(devices: list[Device], limits: Mapping[tuple[str, str], int]) -> int:
    """Return the most shares of devices that consume the same sets of counters."""
    sets = [own for own, _ in devices[0].groups] if devices else []
    return min(
        (max(_sharing(each, limits) for each in _by_group(devices, own)) for own in sets),
        default=_sharing(devices, limits),
    )


def _by_group(devices: list[Device], counter_set: str) -> Iterable[list[Device]]:
    """Return the devices that can be allocated together: they share a group, or have none."""
    found: defaultdict[str, list[Device]] = defaultdict(list)
    for device in devices:
        for group in dict(device.groups)[counter_set] or ("",):
            found[group].append(device)
    return found.values()


def _sharing(devices: list[Device], limits: Mapping[tuple[str, str], int]) -> int:
    """Return the shares of the most devices that fit each counter that they share."""
    fitting = len(devices)
    for key in {key for device in devices for key, _ in device.consumes}:
        amounts = sorted(dict(device.consumes).get(key, 0) for device in devices)
        fitting = min(fitting, bisect_right([*accumulate(amounts)], limits[key]))
    return sum(sorted((device.shares for device in devices), reverse=True)[:fitting])
