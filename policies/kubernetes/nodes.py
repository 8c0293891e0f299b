"""The nodes of a cluster, indexed by label, taint and device.

A pure data structure: a watch keeps it current, rules only read it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from sys import maxsize
from typing import Any, NamedTuple, TypeVar

from policies.kubernetes.core_v1 import Requirement
from policies.kubernetes.scheduling import (
    FENCING_EFFECTS,
    NODE_NAME_FIELD,
    Alternative,
    Taint,
    parse_int64,
)
from policies.kubernetes.selector import Selector

NodeSet = int
"""A set of nodes: bit n stands for the node with number n.

Intersection, union and difference of 15,000 nodes take less than a microsecond.
"""

_MOST_LISTED = 32
"""A value with so many nodes has their numbers in a tuple, others have a bit for each node.

Most values of ``kubernetes.io/hostname`` have one node: a bitset for each would take N² bits."""

_FEW = 24
"""So many shifts of one bit take less time than a set of bytes."""

_BLOCK_COST = 512
"""The most that a query of a label with numbers adds up one by one: its values, and their listed
nodes. A set of bits costs as much as ``_MOST_LISTED`` nodes."""

T = TypeVar("T")


class Room(NamedTuple):
    """The CPU and the memory that Pods can get on a node, in nanos; 0 if unknown.

    Both are rounded up, to a core and to a gibibyte, so that like nodes have the same.
    """

    cpu: int
    memory: int


UNKNOWN_ROOM = Room(0, 0)


class Shape(NamedTuple):
    """How many devices of a name a node offers, and its room."""

    devices: int
    room: Room


@dataclass(frozen=True, slots=True)
class Node:
    """The fields of a Node that placement depends on."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    allocatable: Mapping[str, int] | None = None
    """The devices of device plugins: their number by extended resource; ``None`` if unknown."""
    published: Mapping[str, int] = field(default_factory=dict)
    """The devices of DRA drivers, by each name under which a Pod can request them. The number is 0
    if none can be allocated at the moment."""
    remote: frozenset[str] = frozenset()
    """The names of published devices that are accessible from here, over a network, and that the
    node does not have."""
    room: Room = UNKNOWN_ROOM

    @property
    def offers(self) -> dict[str, int]:
        """The number of devices that a Pod can get, by name.

        The scheduler uses a device plugin's before those that are published under the same name
        (``shouldDelegateResourceToDRA`` of kube-scheduler's ``noderesources``).
        """
        plugged = self.allocatable or {}
        own = {name: n for name, n in plugged.items() if n or not self.published.get(name)}
        return {**self.published, **own} if self.published else own

    @property
    def devices(self) -> frozenset[str]:
        """The names of the devices that the node has, also of those that cannot be allocated."""
        plugged = {name for name, count in (self.allocatable or {}).items() if count}
        return frozenset(plugged | self.published.keys() - self.remote)

    def is_fenced_by(self, taints: Iterable[Taint]) -> bool:
        """Return whether the node carries one of the taints, and that taint repels Pods."""
        return any(_is_fenced(taint, taints) for taint in self.taints)


class NodeIndex:
    """The nodes of a cluster, updated in place.

    Each query is answered with set operations, and looks at no node.
    """

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._nodes: dict[str, Node] = {}
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        """The name of each number, and of a free number the node that had it last."""
        self._free: list[int] = []
        self._all = _Bits()
        self._labels = _Table()
        self._taints = _Table()
        self._devices = _Table()
        self._shapes = _Table()
        """As ``_devices``, with the room of the nodes."""
        self._published = _Table()
        self._having = _Table()
        self._derived: tuple[object, Any] | None = None
        self.version = 0
        """Counts the changes."""
        for node in nodes:
            self.update(node)

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def names(self) -> list[str]:
        return list(self._nodes)

    def get(self, name: str) -> Node | None:
        """Return the node with this name, or ``None``."""
        return self._nodes.get(name)

    def number(self, name: str) -> int:
        """Return the number of a known node, by which sets contain it."""
        return self._numbers[name]

    def update(self, node: Node) -> bool:
        """Add or replace the node, and return whether anything changed."""
        known = self._nodes.get(node.name)
        if known == node:
            return False
        number = self._new_number(node.name) if known is None else self._numbers[node.name]
        self._nodes[node.name] = node
        before, after = self._entries(known), self._entries(node)
        for table, key, value in before - after:
            table.discard(key, value, number)
        for table, key, value in after - before:
            table.add(key, value, number)
        self._has_changed()
        return True

    def remove(self, name: str) -> bool:
        """Remove the node, and return whether it was there."""
        node = self._nodes.pop(name, None)
        if node is None:
            return False
        number = self._numbers.pop(name)
        for table, key, value in self._entries(node):
            table.discard(key, value, number)
        self._all.discard(number)
        self._free.append(number)
        self._has_changed()
        return True

    def derive(self, source: object, make: Callable[[], T]) -> T:
        """Return what ``make`` computes of these nodes and the source, once until a node changes.

        Only for one source at a time: the policy.
        """
        if self._derived is None or self._derived[0] is not source:
            self._derived = (source, make())
        made: T = self._derived[1]
        return made

    def nodes(self, numbers: NodeSet) -> Iterator[Node]:
        """Yield the nodes of the set."""
        for number, bit in enumerate(reversed(f"{numbers:b}")):
            if bit == "1":
                yield self._nodes[self._names[number]]

    def selected_by(self, selector: Selector) -> NodeSet:
        """Return the nodes that meet the selector."""
        found = self._all.whole()
        for key, values in selector.items():
            labels = self._labels
            found &= labels.with_one_of(key, values) if values else labels.with_key(key)
            if not found:
                break
        return found

    def accepted_by(self, alternative: Alternative) -> NodeSet:
        """Return the nodes that meet one alternative of a node selection."""
        found = self._all.whole()
        for key, value in alternative.labels.items():
            found &= self._labels.with_value(key, value)
        for expression in alternative.expressions:
            if not found:
                return 0
            key, operator, values = expression.key or "", expression.operator, expression.values
            if operator == "In":
                found &= self._labels.with_one_of(key, values or ())
            elif operator == "NotIn":
                found ^= found & self._labels.with_one_of(key, values or ())
            elif operator == "Exists":
                found &= self._labels.with_key(key)
            elif operator == "DoesNotExist":
                found ^= found & self._labels.with_key(key)
            else:
                bound = (values or [""])[0]
                found &= self._labels.beyond(key, bound, above=operator == "Gt")
        for requirement in alternative.fields:
            found &= self._with_field(requirement)
        return found

    def fenced_by(self, taints: Iterable[Taint]) -> NodeSet:
        """Return the nodes that carry one of the taints, if that taint repels Pods."""
        keys = {taint.key for taint in taints}
        return self.repelling(lambda taint: _is_fenced(taint, taints), keys)

    def repelling(
        self, repels: Callable[[Taint], bool], keys: Iterable[str] | None = None
    ) -> NodeSet:
        """Return the nodes that carry a taint that repels, one of the keys if there are any."""
        found: NodeSet = 0
        for key in self._taints.keys() if keys is None else keys:
            for own in self._taints.values(key):
                if any(map(repels, own)):
                    found |= self._taints.with_value(key, own)
        return found

    def resources(self) -> Iterable[str]:
        """Return the names of all devices that nodes offer."""
        return self._devices.keys()

    def offering(self, resource: str, count: int = 1) -> NodeSet:
        """Return the nodes that offer so many devices of the resource; ``count`` is above 0."""
        enough = [offered for offered in self._devices.values(resource) if offered >= count]
        return self._devices.with_one_of(resource, enough)

    def published(self) -> Iterable[str]:
        """Return the names of all devices that DRA drivers publish."""
        return self._published.keys()

    def publishing(self, name: str) -> NodeSet:
        """Return the nodes whose DRA drivers publish devices of this name, free or not."""
        return self._published.with_key(name)

    def having(self, name: str) -> NodeSet:
        """Return the nodes that have devices of this name themselves, free or not."""
        return self._having.with_key(name)

    def shapes(self, resource: str, numbers: NodeSet) -> list[Shape]:
        """Return the shapes of the nodes of the set that offer the resource, each once."""
        return [
            shape
            for shape in self._shapes.values(resource)
            if self._shapes.with_value(resource, shape) & numbers
        ]

    def smallest_room(self, resource: str) -> Room:
        """Return the least CPU and the least memory of all nodes that offer the resource."""
        rooms = [shape.room for shape in self._shapes.values(resource)]
        return Room(*map(min, zip(*rooms, strict=True))) if rooms else UNKNOWN_ROOM

    def offers(self, resource: str, numbers: NodeSet) -> list[int]:
        """Return the numbers of devices of the resource that nodes of the set offer."""
        values = self._devices.values(resource)
        return [n for n in values if self._devices.with_value(resource, n) & numbers]

    def total_offer(self, resource: str, numbers: NodeSet) -> int:
        """Return how many devices of the resource the nodes offer in all."""
        return sum(
            count * (self._devices.with_value(resource, count) & numbers).bit_count()
            for count in self._devices.values(resource)
        )

    def room_for(self, needed: Mapping[str, int], numbers: NodeSet, most: int) -> int:
        """Return how many Pods that need so many devices fit on the nodes: up to ``most``."""
        return min(most, _room(self._by_room(needed, numbers)))

    def rooms_for(
        self, needed: Mapping[str, int], numbers: NodeSet, key: str, most: int
    ) -> Iterator[int]:
        """Yield how many such Pods fit on the nodes with each value of a label.

        There are none if the label has more than ``most`` values.
        """
        values, by_room = self._labels.values(key), self._by_room(needed, numbers)
        for value in values if len(values) <= most else ():
            yield _room(by_room, self._labels.with_value(key, value))

    def _by_room(self, needed: Mapping[str, int], numbers: NodeSet) -> Mapping[int, NodeSet]:
        """Return the nodes of the set by the number of such Pods that fit on one of them."""
        by_room: dict[int, NodeSet] = {maxsize: numbers}
        for name, count in needed.items():
            split: defaultdict[int, NodeSet] = defaultdict(int)
            for offered in self._devices.values(name):
                own = self._devices.with_value(name, offered)
                for room, nodes in by_room.items():
                    split[min(room, offered // count)] |= nodes & own
            by_room = split
        return by_room

    def _with_field(self, requirement: Requirement) -> NodeSet:
        name = (requirement.values or [""])[0]
        if requirement.key == NODE_NAME_FIELD:
            number = self._numbers.get(name)
            found = 0 if number is None else 1 << number
        else:
            found = 0 if name else self._all.whole()
        return found if requirement.operator == "In" else self._all.whole() ^ found

    def _new_number(self, name: str) -> int:
        if self._free:
            number = self._free.pop()
            self._names[number] = name
        else:
            number = len(self._names)
            self._names.append(name)
        self._numbers[name] = number
        self._all.add(number)
        return number

    def _entries(self, node: Node | None) -> set[tuple[_Table, str, Any]]:
        if node is None:
            return set()
        entries: set[tuple[_Table, str, Any]] = {
            (self._labels, key, value) for key, value in node.labels.items()
        }
        for key in {taint.key for taint in node.taints}:
            own = frozenset(taint for taint in node.taints if taint.key == key)
            entries.add((self._taints, key, own))
        for name, count in node.offers.items():
            entries.add((self._devices, name, count))
            entries.add((self._shapes, name, Shape(count, node.room)))
        entries.update((self._published, name, True) for name in node.published)
        entries.update((self._having, name, True) for name in node.devices)
        return entries

    def _has_changed(self) -> None:
        self.version += 1
        self._derived = None


def _room(by_room: Mapping[int, NodeSet], domain: NodeSet = -1) -> int:
    return sum(room * (nodes & domain).bit_count() for room, nodes in by_room.items())


def lowest(numbers: NodeSet) -> int:
    """Return the lowest number in the set, which is not empty."""
    return (numbers & -numbers).bit_length() - 1


class _Bits:
    """The numbers of many nodes. They change in place, whatever their number."""

    __slots__ = ("_bytes", "_size", "_whole")

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._bytes = bytearray()
        self._size = 0
        self._whole: NodeSet | None = 0
        for number in numbers:
            self.add(number)

    def __bool__(self) -> bool:
        return self._size > 0

    def add(self, number: int) -> None:
        """Add a number that is not there."""
        byte = number >> 3
        if byte >= len(self._bytes):
            self._bytes.extend(bytes(byte + 1 - len(self._bytes)))
        self._bytes[byte] |= 1 << (number & 7)
        self._size, self._whole = self._size + 1, None

    def discard(self, number: int) -> None:
        """Remove a number that is there."""
        self._bytes[number >> 3] ^= 1 << (number & 7)
        self._size, self._whole = self._size - 1, None

    def whole(self) -> NodeSet:
        """Return the set, made once until it changes."""
        if self._whole is None:
            self._whole = int.from_bytes(self._bytes, "little")
        return self._whole


_Members = _Bits | tuple[int, ...]


def _with(members: _Members, number: int) -> _Members:
    if isinstance(members, _Bits):
        members.add(number)
        return members
    members = (*members, number)
    return members if len(members) <= _MOST_LISTED else _Bits(members)


def _without(members: _Members, number: int) -> _Members:
    if isinstance(members, _Bits):
        members.discard(number)
        return members
    return tuple(member for member in members if member != number)


class _Table:
    """The nodes by key and value, for example of a label. A node has one value of a key."""

    def __init__(self) -> None:
        self._by_value: dict[str, dict[Any, _Members]] = {}
        self._by_key: dict[str, _Members] = {}
        self._numeric: dict[str, dict[str, int]] = {}
        """Of each key, the values that are numbers."""
        self._ordered: dict[str, _Ordered] = {}
        """These values in order, kept from the first query on."""

    def keys(self) -> Iterable[str]:
        return self._by_value.keys()

    def values(self, key: str) -> Collection[Any]:
        return self._by_value.get(key, {}).keys()

    def add(self, key: str, value: Any, number: int) -> None:
        by_value = self._by_value.setdefault(key, {})
        if value not in by_value and isinstance(value, str):
            parsed = parse_int64(value)
            if parsed is not None:
                self._numeric.setdefault(key, {})[value] = parsed
        by_value[value] = _with(by_value.get(value, ()), number)
        self._by_key[key] = _with(self._by_key.get(key, ()), number)
        self._order(key, value)

    def discard(self, key: str, value: Any, number: int) -> None:
        by_value = self._by_value[key]
        by_value[value] = _without(by_value[value], number)
        self._by_key[key] = _without(self._by_key[key], number)
        if not by_value[value]:
            del by_value[value]
        self._order(key, value)
        if value not in by_value:
            self._numeric.get(key, {}).pop(value, None)
        if not self._by_key[key]:
            del self._by_value[key], self._by_key[key]
            self._numeric.pop(key, None)
            self._ordered.pop(key, None)

    def with_value(self, key: str, value: Any) -> NodeSet:
        return _bits(self._by_value.get(key, {}).get(value, ()))

    def with_one_of(self, key: str, values: Iterable[Any]) -> NodeSet:
        by_value = self._by_value.get(key)
        found: NodeSet = 0
        if by_value is not None:
            found = _union(by_value[value] for value in values if value in by_value)
        return found

    def with_key(self, key: str) -> NodeSet:
        return _bits(self._by_key.get(key, ()))

    def beyond(self, key: str, bound: str, *, above: bool) -> NodeSet:
        """Return the nodes whose value is a number above the bound, or else below it."""
        limit = parse_int64(bound)
        if limit is None or not (numeric := self._numeric.get(key)):
            return 0
        ordered = self._ordered.get(key)
        if ordered is None:
            ordered = self._ordered[key] = _Ordered(self._by_value[key], numeric)
        return ordered.above(limit) if above else ordered.below(limit)

    def _order(self, key: str, value: Any) -> None:
        if (ordered := self._ordered.get(key)) and value in self._numeric[key]:
            ordered.update((self._numeric[key][value], value))


class _Ordered:
    """The nodes of one label in the order of its values that are numbers.

    The values are in blocks. A query adds values of one block to the nodes of all blocks before it,
    which are kept until a node in one of them changes.
    """

    def __init__(self, by_value: Mapping[str, _Members], numbers: Mapping[str, int]) -> None:
        self._by_value = by_value
        self._blocks = self._split(sorted((number, value) for value, number in numbers.items()))
        self._nodes: list[NodeSet | None] = [None] * len(self._blocks)
        self._before: list[NodeSet] = [0]

    def update(self, item: tuple[int, str]) -> None:
        """Note that other nodes have a value now, or that none has it."""
        at = max(bisect_right(self._blocks, [item]) - 1, 0)
        block = self._blocks[at] if self._blocks else []
        place = bisect_left(block, item)
        known = block[place : place + 1] == [item]
        block[place : place + known] = [item] if item[1] in self._by_value else []
        cost = sum([_cost(self._by_value[value]) for _, value in block])
        parts = [block] if 0 < cost <= _BLOCK_COST else self._split(block)
        self._blocks[at : at + 1] = parts
        self._nodes[at : at + 1] = [None] * len(parts)
        del self._before[at + 1 :]

    def below(self, limit: int) -> NodeSet:
        at = max(bisect_left(self._blocks, [(limit,)]) - 1, 0)
        block = self._blocks[at]
        return self._first(at) | self._union(block[: bisect_left(block, (limit,))])

    def above(self, limit: int) -> NodeSet:
        return self._first(len(self._blocks)) ^ self.below(limit + 1)

    def _first(self, blocks: int) -> NodeSet:
        """Return the nodes of the first blocks."""
        for at in range(len(self._before) - 1, blocks):
            nodes = self._nodes[at]
            if nodes is None:
                nodes = self._nodes[at] = self._union(self._blocks[at])
            self._before.append(self._before[at] | nodes)
        return self._before[blocks]

    def _split(self, items: Iterable[tuple[int, str]]) -> list[list[tuple[int, str]]]:
        """Return blocks with room for as much as they have."""
        blocks, room = list[list[tuple[int, str]]](), 0
        for item in items:
            cost = _cost(self._by_value[item[1]])
            if room < cost:
                blocks.append([])
                room = _BLOCK_COST // 2
            blocks[-1].append(item)
            room -= cost
        return blocks

    def _union(self, items: Iterable[tuple[int, str]]) -> NodeSet:
        return _union(self._by_value[value] for _, value in items)


def _cost(members: _Members) -> int:
    """Return what it costs to add the nodes of a value to a set."""
    return 1 + (_MOST_LISTED if isinstance(members, _Bits) else len(members))


def _bits(members: _Members) -> NodeSet:
    return _union((members,))


def _union(parts: Iterable[_Members]) -> NodeSet:
    """Return the nodes of all parts. Of those that are listed, one set is made."""
    found: NodeSet = 0
    listed: list[int] = []
    for members in parts:
        if isinstance(members, _Bits):
            found |= members.whole()
        else:
            listed += members
    if len(listed) <= _FEW:
        for number in listed:
            found |= 1 << number
        return found
    made = bytearray((max(listed) >> 3) + 1)
    for number in listed:
        made[number >> 3] |= 1 << (number & 7)
    return found | int.from_bytes(made, "little")


def _is_fenced(taint: Taint, by: Iterable[Taint]) -> bool:
    return taint.effect in FENCING_EFFECTS and any(pool_taint.includes(taint) for pool_taint in by)
