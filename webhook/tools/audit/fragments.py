"""Free devices that are enough for a Pod only together, and what would be without small Pods.

Devices are all that counts: not CPU, memory, taints, or the node selection of Pods.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from webhook.tools.audit.pools import PoolState
from webhook.wording import counted, some


class WithoutSmall(NamedTuple):
    """A sentence about a pool without small Pods, and the Pods that run then, and not before."""

    sentence: str
    waiting: Sequence[str]


def pieces(states: Iterable[PoolState]) -> Iterator[str]:
    """Yield a sentence for free devices that a Pod, or one for a whole node, would get together."""
    for state in states:
        nodes = state.nodes.values()
        for resource, free in sorted(state.free.items()):
            sizes = Counter(node.free[resource] for node in nodes if node.free.get(resource))
            largest = max(sizes, default=0)
            waiting = [each for each in _waiting(state, resource) if each[1] > largest]
            together = _placed([free], waiting)
            if together or largest < max(n.offered.get(resource, 0) for n in nodes) <= free:
                shown = ", ".join(f"{n} x {size}" for size, n in sorted(sizes.items())[::-1])
                pods = f"{counted(len(together), 'waiting Pod')} ({some(together)})"
                yield (
                    f"pool {state.pool.name}: {free:,} {resource} are free in pieces (nodes x "
                    f"devices): {shown}. Together, they would be enough for "
                    f"{pods if together else 'no waiting Pod'}"
                )


def without_small(states: Iterable[PoolState], least: int) -> Iterator[WithoutSmall]:
    """Yield each pool in which Pods hold fewer devices of a name than ``least``."""
    for state in states:
        for resource in sorted(state.offered):
            nodes = [each for each in state.nodes.values() if resource in each.offered]
            held = [[(d.get(resource, 0), pod) for pod, d in node.requests] for node in nodes]
            small = sorted(p.owned.full_name for own in held for n, p in own if 0 < n < least)
            if not small:
                continue
            whole = [node.offered[resource] for node in nodes]
            now = [node.free[resource] for node in nodes]
            kept = [sum(n for n, _ in own if n >= least) for own in held]
            then = [max(0, offered - n) for offered, n in zip(whole, kept, strict=True)]
            waiting = [each for each in _waiting(state, resource) if each[1] >= least]
            placed = {*_placed(now, waiting)}
            more = [name for name in _placed(then, waiting) if name not in placed]
            before, after = (sum(map(int.__eq__, free, whole)) for free in (now, then))
            yield WithoutSmall(
                f"pool {state.pool.name} with minDevices {least}: without "
                f"{counted(len(small), 'Pod')} ({some(small)}), {counted(after, 'node')} with "
                f"{resource} would be free as a whole ({before} now), and "
                f"{counted(len(more), 'more waiting Pod')} would run",
                more,
            )


def _waiting(state: PoolState, resource: str) -> list[tuple[str, int]]:
    """Return the Pods that wait for devices of the name, and how many, the oldest first."""
    pods = sorted(
        (pod.times.created, pod.owned.full_name, devices[resource])
        for pod, devices in state.requests
        if not pod.node and devices.get(resource)
    )
    return [(name, devices) for _, name, devices in pods]


def _placed(free: Iterable[int], waiting: Iterable[tuple[str, int]]) -> list[str]:
    """Return the Pods that get their devices, each on the node with the fewest that are enough."""
    left, placed = sorted(free), []
    for name, devices in waiting:
        index = bisect_left(left, devices)
        if index < len(left):
            insort(left, left.pop(index) - devices)
            placed.append(name)
    return placed
