"""Device-hours in a window of time: what Pods hold and wait for, and what is wasted.

All of it follows from the present state of the cluster. A Pod that ended and is gone is not
counted, and of an earlier state only what conditions still show. A device has one kind of waste at
a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from operator import attrgetter
from statistics import median_low
from types import MappingProxyType
from typing import Literal, NamedTuple

from webhook.tools.audit.judge import RunningPod
from webhook.tools.audit.pools import PoolNode, PoolState

Kind = Literal["held", "pending", "notReady", "idle", "stranded", "trespassed"]
WASTE: tuple[Kind, ...] = ("notReady", "idle", "stranded", "trespassed")
"""The kinds that cost money and do no work: the first two are held, the others are free."""

_MOST_PODS = 10
_SECONDS_PER_HOUR = 3600.0


class Row(NamedTuple):
    """Devices of one pool, namespace and kind.

    ``devices`` counts those of now, ``hours`` are device-hours of the window, and ``cost`` is their
    price, if the pool has one. ``pods`` are the Pods with the most device-hours. Those of stranded
    and trespassed devices hold the CPU or the memory.
    """

    pool: str
    namespace: str
    kind: Kind
    devices: int
    hours: float
    cost: float | None
    pods: tuple[str, ...]


class Window(NamedTuple):
    """A window of time: Unix times, in seconds."""

    start: float
    end: float

    def hours(self, since: float, until: float | None = None) -> float:
        """Return the hours of the window between two times; ``until`` its end if not given."""
        last = self.end if until is None else min(until, self.end)
        return max(0.0, last - max(since, self.start)) / _SECONDS_PER_HOUR


class _Share(NamedTuple):
    """The part of a row that one Pod causes."""

    kind: Kind
    pod: RunningPod
    devices: int
    hours: float


def waste(
    states: Iterable[PoolState],
    window: Window,
    idle: Mapping[tuple[str, str], float] = MappingProxyType({}),
) -> list[Row]:
    """Return the table, with the most expensive waste first.

    ``idle`` are the device-hours of Pods, by namespace and name, in which a device did not work.
    """
    rows = []
    for state in states:
        parts: defaultdict[tuple[str, Kind], list[_Share]] = defaultdict(list)
        for share in (*_requested(state, window, idle), *_free(state, window)):
            parts[share.pod.owned.namespace, share.kind].append(share)
        for (namespace, kind), shares in parts.items():
            hours = sum(share.hours for share in shares)
            price = None if kind == "pending" else state.pool.price_per_device_hour
            largest = nlargest(_MOST_PODS, shares, key=attrgetter("hours"))
            row = Row(
                state.pool.name,
                namespace,
                kind,
                sum(share.devices for share in shares),
                hours,
                None if price is None else price * hours,
                tuple(share.pod.owned.name for share in largest),
            )
            rows.append(row)
    return sorted(rows, key=_first)


def _first(row: Row) -> tuple[bool, float, float]:
    return row.kind not in WASTE, -(row.cost or 0.0), -row.hours


def _requested(
    state: PoolState, window: Window, idle: Mapping[tuple[str, str], float]
) -> Iterator[_Share]:
    for pod, devices in state.requests:
        times, name = pod.times, (pod.owned.namespace, pod.owned.name)
        if not pod.node:
            yield _Share("pending", pod, devices, devices * window.hours(times.created))
            continue
        if waited := window.hours(times.created, times.scheduled):
            yield _Share("pending", pod, 0, devices * waited)
        held, not_ready = devices * window.hours(times.scheduled), 0.0
        yield _Share("held", pod, devices, held)
        unready_since = times.unready_since(window.end)
        if unready_since is not None:
            not_ready = devices * window.hours(unready_since)
            yield _Share("notReady", pod, devices, not_ready)
        if unused := max(0.0, min(idle.get(name, 0.0), held - not_ready)):
            yield _Share("idle", pod, devices if unready_since is None else 0, unused)


def _free(state: PoolState, window: Window) -> Iterator[_Share]:
    """Yield the free devices that nodes lack the CPU or the memory for.

    They have been so at least since the last Pod came to the node. The Pod counts that takes the
    most beyond the needs of its devices.
    """
    typical = _typical(state.requests)
    for node in state.nodes.values():
        if not node.free or not node.pods:
            continue
        devices, need, which = min(_fit(node, which, typical) for which in (0, 1))
        if (blocked := node.free - devices) > 0:
            excess = [pod.host[which] - need * sum(pod.devices.values()) for pod in node.pods]
            pod = node.pods[excess.index(max(excess))]
            trespasses = any(each is pod for each in node.trespassers)
            since = max(each.times.scheduled for each in node.pods)
            hours = blocked * window.hours(since)
            yield _Share("trespassed" if trespasses else "stranded", pod, blocked, hours)


def _typical(requests: Sequence[tuple[RunningPod, int]]) -> tuple[int, int] | None:
    """Return the median CPU and memory for each device; ``None`` if no Pod requests one."""
    if not requests:
        return None
    cpu, memory = (
        median_low(pod.host[which] // devices for pod, devices in requests) for which in (0, 1)
    )
    return cpu, memory


def _fit(node: PoolNode, which: int, typical: tuple[int, int] | None) -> tuple[int, int, int]:
    """Return for how many free devices the node's CPU (``which`` 0) or memory (1) suffices.

    The second value is what one device needs, in nanos, and the third is ``which``.

    A device needs what is typical in its pool, but not more than its share of what node agents
    leave.
    """
    agents = sum(pod.host[which] for pod in node.pods if pod.is_agent)
    taken = sum(pod.host[which] for pod in node.pods)
    room = node.details.room[which]
    share = max(1, (room - agents) // sum(node.offered.values()))
    need = share if typical is None else min(share, typical[which])
    left = max(0, room - taken)
    fits = need == 0 or not room
    return node.free if fits else left // need, need, which
