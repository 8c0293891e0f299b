"""Free devices that no Pod can use because they are on several nodes, and what would be without
small Pods.

Devices are all that counts: not CPU, memory, taints, or the node selection of Pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from webhook.tools.audit.pools import PoolState
from webhook.wording import counted, some


class Waiting(NamedTuple):
    """A Pod that waits for devices of one name."""

    name: str
    devices: int


class Pieces(NamedTuple):
    """The free devices of one name in a pool; ``sizes`` counts nodes by their number.

    ``waiting`` are the Pods that would run if the devices were on one node.
    """

    pool: str
    resource: str
    sizes: Counter[int]
    waiting: Sequence[str]

    def __str__(self) -> str:
        sizes = ", ".join(f"{nodes} x {size}" for size, nodes in sorted(self.sizes.items())[::-1])
        free = sum(size * nodes for size, nodes in self.sizes.items())
        waiting = "no waiting Pod"
        if self.waiting:
            waiting = f"{counted(len(self.waiting), 'waiting Pod')} ({some(self.waiting)})"
        return (
            f"pool {self.pool}: {free:,} {self.resource} "
            f"are free in pieces (nodes x devices): {sizes}. Together, they would be enough for "
            f"{waiting}"
        )


class WithoutSmall(NamedTuple):
    """A pool without the Pods that hold fewer devices than ``least``.

    ``before`` and ``after`` count the nodes whose devices are all free.
    """

    pool: str
    resource: str
    least: int
    pods: Sequence[str]
    before: int
    after: int
    waiting: Sequence[str]

    def __str__(self) -> str:
        return (
            f"pool {self.pool} with minDevices {self.least}: without "
            f"{counted(len(self.pods), 'Pod')} ({some(self.pods)}), "
            f"{counted(self.after, 'node')} with {self.resource} would be free as a whole "
            f"({self.before} now), and {counted(len(self.waiting), 'waiting Pod')} more would run"
        )


def pieces(states: Iterable[PoolState]) -> Iterator[Pieces]:
    """Yield the free devices that a waiting Pod, or one for a whole node, would get together."""
    for state in states:
        for resource, free in sorted(state.free.items()):
            sizes = Counter(node.free.get(resource, 0) for node in state.nodes.values())
            del sizes[0]
            largest = max(sizes, default=0)
            large = [each for each in _waiting(state, resource) if each.devices > largest]
            together = _placed([free], large)
            whole = max(node.offered.get(resource, 0) for node in state.nodes.values())
            if together or largest < whole <= free:
                yield Pieces(state.pool.name, resource, sizes, together)


def without_small(states: Iterable[PoolState], least: int) -> Iterator[WithoutSmall]:
    """Yield each pool in which Pods hold fewer devices of a name than ``least``."""
    for state in states:
        for resource in sorted(state.offered):
            nodes = [each for each in state.nodes.values() if each.offered.get(resource)]
            small = {
                (each.name, pod.owned.full_name): devices[resource]
                for pod, devices in state.requests
                if (each := state.nodes.get(pod.node)) and 0 < devices.get(resource, 0) < least
            }
            if not small:
                continue
            returned: Counter[str] = Counter()
            for (node, _), count in small.items():
                returned[node] += count
            now = [node.free[resource] for node in nodes]
            then = [
                min(node.offered[resource], node.free[resource] + returned[node.name])
                for node in nodes
            ]
            whole = [node.offered[resource] for node in nodes]
            waiting = [each for each in _waiting(state, resource) if each.devices >= least]
            yield WithoutSmall(
                state.pool.name,
                resource,
                least,
                sorted(name for _, name in small),
                sum(free == all_of_it for free, all_of_it in zip(now, whole, strict=True)),
                sum(free == all_of_it for free, all_of_it in zip(then, whole, strict=True)),
                [name for name in _placed(then, waiting) if name not in _placed(now, waiting)],
            )


def _waiting(state: PoolState, resource: str) -> list[Waiting]:
    """Return the Pods that wait for devices of the name, the oldest first."""
    pods = sorted(
        (pod.times.created, pod.owned.full_name, devices[resource])
        for pod, devices in state.requests
        if not pod.node and devices.get(resource)
    )
    return [Waiting(name, devices) for _, name, devices in pods]


def _placed(free: Iterable[int], waiting: Iterable[Waiting]) -> list[str]:
    """Return the Pods that get their devices, each on the node with the fewest that are enough."""
    left, placed = sorted(free), []
    for name, devices in waiting:
        index = next((i for i, count in enumerate(left) if count >= devices), None)
        if index is not None:
            left[index] -= devices
            left.sort()
            placed.append(name)
    return placed
