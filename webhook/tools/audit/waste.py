"""Device-hours in a window of time: what Pods hold and wait for, and what is wasted.

All of it follows from the present state of the cluster. A Pod that ended and is gone is not
counted, and of an earlier state only what conditions still show. A device has one kind of waste at
a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest
from operator import attrgetter
from statistics import median_low
from types import MappingProxyType
from typing import Literal, NamedTuple

from policies.rules import check_stranded_devices as stranded
from webhook.tools.audit.judge import RunningPod
from webhook.tools.audit.pools import PoolNode, PoolState

Kind = Literal["held", "pending", "notReady", "idle", "stranded", "trespassed"]
WASTE: tuple[Kind, ...] = ("notReady", "idle", "stranded", "trespassed")
"""The kinds that cost money and do no work: the first two are held, the others are free."""

_MOST_PODS = 10
_SECONDS_PER_HOUR = 3600.0


class Row(NamedTuple):
    """Devices of one name, by pool, namespace and kind.

    ``devices`` counts those of now, ``hours`` are device-hours of the window, and ``cost`` is their
    price, if the pool has one. ``pods`` are the Pods with the most device-hours, and ``nodes`` are
    theirs. Those of stranded and trespassed devices hold the CPU, the memory, or the IMEX channel.
    """

    pool: str
    namespace: str
    kind: Kind
    resource: str
    devices: int
    hours: float
    cost: float | None
    pods: tuple[str, ...]
    nodes: tuple[str, ...]


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
    resource: str
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
        parts: defaultdict[tuple[str, Kind, str], list[_Share]] = defaultdict(list)
        for share in (*_requested(state, window, idle), *_free(state, window)):
            parts[share.pod.owned.namespace, share.kind, share.resource].append(share)
        for (namespace, kind, resource), shares in parts.items():
            hours = sum(share.hours for share in shares)
            price = None if kind == "pending" else state.pool.price_per_device_hour
            largest = nlargest(_MOST_PODS, shares, key=attrgetter("hours"))
            row = Row(
                state.pool.name,
                namespace,
                kind,
                resource,
                sum(share.devices for share in shares),
                hours,
                None if price is None else price * hours,
                tuple(share.pod.owned.name for share in largest),
                tuple(dict.fromkeys(share.pod.node for share in largest if share.pod.node)),
            )
            rows.append(row)
    return sorted(rows, key=_first)


def _first(row: Row) -> tuple[bool, float, float]:
    return row.kind not in WASTE, -(row.cost or 0.0), -row.hours


def _requested(
    state: PoolState, window: Window, idle: Mapping[tuple[str, str], float]
) -> Iterator[_Share]:
    for pod, by_name in state.requests:
        for resource, devices in by_name.items():
            part = devices / sum(by_name.values())
            yield from _of_pod(pod, resource, devices, part, window, idle)


def _of_pod(
    pod: RunningPod,
    resource: str,
    devices: int,
    part: float,
    window: Window,
    idle: Mapping[tuple[str, str], float],
) -> Iterator[_Share]:
    """Yield the shares of a Pod's devices of one name, which are this part of all its devices."""
    times, name = pod.times, (pod.owned.namespace, pod.owned.name)
    if not pod.node:
        hours = devices * window.hours(times.created)
        yield _Share("pending", pod, resource, devices, hours)
        return
    if waited := window.hours(times.created, times.scheduled):
        yield _Share("pending", pod, resource, 0, devices * waited)
    held, not_ready = devices * window.hours(times.scheduled), 0.0
    yield _Share("held", pod, resource, devices, held)
    unready_since = times.unready_since(window.end)
    if unready_since is not None:
        not_ready = devices * window.hours(unready_since)
        yield _Share("notReady", pod, resource, devices, not_ready)
    if unused := max(0.0, min(idle.get(name, 0.0) * part, held - not_ready)):
        count = devices if unready_since is None else 0
        yield _Share("idle", pod, resource, count, unused)


def _free(state: PoolState, window: Window) -> Iterator[_Share]:
    """Yield the free devices that nodes lack the CPU, the memory, or the IMEX channel for.

    They have been so at least since the last Pod came to the node. The Pod counts that takes the
    most beyond the needs of its devices.
    """
    typical = _typical(state.requests)
    for node in state.nodes.values():
        for resource, free in node.free.items():
            if not free or not node.pods:
                continue
            holder = next((pod for pod in node.pods if _holds_channel(pod)), None)
            if holder:
                hours = free * window.hours(holder.times.scheduled)
                yield _Share("stranded", holder, resource, free, hours)
                continue
            devices, need, which = min(
                _fit(node, free, which, typical.get(resource)) for which in (0, 1)
            )
            if (blocked := free - devices) > 0:
                excess = [pod.host[which] - need * sum(pod.devices.values()) for pod in node.pods]
                pod = node.pods[excess.index(max(excess))]
                trespasses = any(each is pod for each in node.trespassers)
                hours = blocked * window.hours(max(each.times.scheduled for each in node.pods))
                kind: Kind = "trespassed" if trespasses else "stranded"
                yield _Share(kind, pod, resource, blocked, hours)


def _holds_channel(pod: RunningPod) -> bool:
    return any(finding.rule == stranded.ID for finding in pod.decision.findings)


def _typical(
    requests: Iterable[tuple[RunningPod, Mapping[str, int]]],
) -> dict[str, tuple[int, int]]:
    """Return by name the median CPU and memory for each device of the Pods that request it."""
    hosts: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for pod, by_name in requests:
        devices = sum(by_name.values())
        for resource in by_name:
            hosts[resource].append((pod.host[0] // devices, pod.host[1] // devices))
    return {
        resource: (median_low(cpu for cpu, _ in each), median_low(memory for _, memory in each))
        for resource, each in hosts.items()
    }


def _fit(
    node: PoolNode, free: int, which: int, typical: tuple[int, int] | None
) -> tuple[int, int, int]:
    """Return for how many free devices the node's CPU (``which`` 0) or memory (1) suffices.

    The second value is what one device needs, in nanos, and the third is ``which``.

    A device needs what is typical for its name in its pool, but not more than its share of what
    node agents leave.
    """
    agents = sum(pod.host[which] for pod in node.pods if pod.is_agent)
    taken = sum(pod.host[which] for pod in node.pods)
    room = node.details.room[which]
    share = max(1, (room - agents) // sum(node.offered.values()))
    need = share if typical is None else min(share, typical[which])
    left = max(0, room - taken)
    fits = need == 0 or not room
    return free if fits else left // need, need, which
