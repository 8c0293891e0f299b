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

from policies.rules.check_stranded_devices import TAKES_CHANNEL
from webhook.tools.audit.judge import RunningPod
from webhook.tools.audit.pools import PoolNode, PoolState

Kind = Literal[
    "held", "pending", "notReady", "idle", "hung", "unknown", "overtime", "stranded", "trespassed"
]
WASTE: tuple[Kind, ...] = ("notReady", "idle", "hung", "stranded", "trespassed")
"""The kinds that cost money and do no work: the first three are held, the others are free.

``unknown`` and ``overtime`` are parts of what is held: the time in which it is unknown what the
devices did, and the time beyond the longest run time."""

_MOST_PODS = 10
_SECONDS_PER_HOUR = 3600.0
_INACCURACY = 0.25
"""The hours of a device that may lack samples before it is unknown what it did."""


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


class Use(NamedTuple):
    """The device-hours of a Pod in which its devices were idle, hung, and worked.

    Those of hung devices are among those that worked.
    """

    idle: float = 0.0
    hung: float = 0.0
    worked: float = 0.0


class PodHours(NamedTuple):
    """A Pod, the node where it holds or held devices, and some of their hours."""

    namespace: str
    name: str
    node: str
    hours: float


class _Share(NamedTuple):
    """The part of a row that one Pod causes."""

    kind: Kind
    namespace: str
    name: str
    node: str
    resource: str
    devices: int
    hours: float


def waste(
    states: Iterable[PoolState],
    window: Window,
    use: Mapping[tuple[str, str], Use] = MappingProxyType({}),
    limits: Mapping[str, float] = MappingProxyType({}),
    past: Mapping[float, Iterable[PodHours]] = MappingProxyType({}),
) -> list[Row]:
    """Return the table, with the most expensive waste first.

    ``use`` is that of Pods, by namespace and name; if it is empty, there are no rows about it.
    ``limits`` are the longest run times by pool, in seconds. Of the ``past`` runs of a limit, those
    of Pods that are gone count.
    """
    rows = []
    for state in states:
        parts: defaultdict[tuple[str, Kind, str], list[_Share]] = defaultdict(list)
        limit = limits.get(state.pool.name)
        for share in (
            *_requested(state, window, use, limit),
            *_of_past(state, () if limit is None else past.get(limit, ())),
            *_free(state, window),
        ):
            parts[share.namespace, share.kind, share.resource].append(share)
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
                tuple(share.name for share in largest),
                tuple(dict.fromkeys(share.node for share in largest if share.node)),
            )
            rows.append(row)
    return sorted(rows, key=_first)


def _first(row: Row) -> tuple[bool, float, float]:
    return row.kind not in WASTE, -(row.cost or 0.0), -row.hours


def _requested(
    state: PoolState,
    window: Window,
    use: Mapping[tuple[str, str], Use],
    limit: float | None,
) -> Iterator[_Share]:
    for pod, by_name in state.requests:
        owned = pod.owned
        of_pod = use.get((owned.namespace, owned.name), Use()) if use else None
        for resource, devices in by_name.items():
            part = devices / sum(by_name.values())
            for kind, count, hours in _of_pod(pod, devices, part, window, of_pod, limit):
                yield _Share(kind, owned.namespace, owned.name, pod.node, resource, count, hours)


def _of_pod(
    pod: RunningPod,
    devices: int,
    part: float,
    window: Window,
    use: Use | None,
    limit: float | None,
) -> Iterator[tuple[Kind, int, float]]:
    """Yield kind, number and hours of a Pod's devices, which are this part of all its devices."""
    times = pod.times
    if not pod.node:
        yield "pending", devices, devices * window.hours(times.created)
        return
    if waited := window.hours(times.created, times.scheduled):
        yield "pending", 0, devices * waited
    left = devices * window.hours(times.scheduled)
    yield "held", devices, left
    if limit is not None and (beyond := window.hours(times.scheduled + limit)):
        yield "overtime", devices, devices * beyond
    unready_since = times.unready_since(window.end)
    if unready_since is not None:
        not_ready = devices * window.hours(unready_since)
        yield "notReady", devices, not_ready
        left -= not_ready
    if use is None:
        return
    count = devices if unready_since is None else 0
    hung, worked = use.hung * part, use.worked * part
    kinds: tuple[tuple[Kind, float], ...] = (("idle", use.idle * part), ("hung", hung))
    for kind, hours in kinds:
        if hours := max(0.0, min(hours, left)):
            yield kind, count, hours
            left -= hours
    if left > (worked - hung) + _INACCURACY * devices:
        yield "unknown", count, left - (worked - hung)


def _of_past(state: PoolState, past: Iterable[PodHours]) -> Iterator[_Share]:
    present = {pod.owned.full_name for pod, _ in state.requests}
    for namespace, name, node, hours in past:
        known = state.nodes.get(node)
        if known and known.offered and f"{namespace}/{name}" not in present:
            resource = next(iter(known.offered))
            yield _Share("overtime", namespace, name, node, resource, 0, hours)


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
                owned = holder.owned
                yield _Share(
                    "stranded", owned.namespace, owned.name, node.name, resource, free, hours
                )
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
                owned = pod.owned
                yield _Share(kind, owned.namespace, owned.name, node.name, resource, blocked, hours)


def _holds_channel(pod: RunningPod) -> bool:
    return any(finding.reason == TAKES_CHANNEL for finding in pod.decision.findings)


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
    room = node.room[which]
    share = max(1, (room - agents) // sum(node.offered.values()))
    need = share if typical is None else min(share, typical[which])
    left = max(0, room - taken)
    fits = need == 0 or not room
    return free if fits else left // need, need, which
