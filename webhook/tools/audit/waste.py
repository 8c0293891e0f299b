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

from policies.policy import Pool
from policies.rules.check_stranded_devices import LEAST, TAKES_CHANNEL
from webhook.tools.audit.judge import RunningPod
from webhook.tools.audit.pools import PoolNode, PoolState, Requests

Kind = Literal["held", "pending", "notReady", "idle", "hung", "unknown", "overtime", "stranded"]
WASTE: tuple[Kind, ...] = ("notReady", "idle", "hung", "stranded")
"""The kinds that cost money and do no work: the first three are held, the last is free.

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
    theirs. Those of stranded devices hold the CPU, the memory, or the IMEX channel.
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
    """Device-hours of one Pod, and the number of these devices that are so now.

    Those of a Pod that is gone are beyond the longest run time, of devices of its node.
    """

    namespace: str
    name: str
    node: str
    hours: float
    kind: Kind = "overtime"
    resource: str = ""
    devices: int = 0


class Limit(NamedTuple):
    """The longest run time of a pool's Pods in seconds, and earlier runs that were longer."""

    seconds: float
    past: Sequence[PodHours] = ()


def waste(
    states: Iterable[PoolState],
    window: Window,
    use: Mapping[tuple[str, str], Use] = MappingProxyType({}),
    limits: Mapping[str, Limit] = MappingProxyType({}),
) -> list[Row]:
    """Return the table, with the most expensive waste first.

    ``use`` is that of Pods, by namespace and name; if it is empty, there are no rows about it.
    ``limits`` are those of pools, by name.
    """
    rows = []
    for state in states:
        parts: defaultdict[tuple[str, Kind, str], list[PodHours]] = defaultdict(list)
        limit = limits.get(state.pool.name)
        for each in (*_requested(state, window, use, limit), *_free(state, window)):
            parts[each.namespace, each.kind, each.resource].append(each)
        rows += [_row(state.pool, *key, of_pods) for key, of_pods in parts.items()]
    return sorted(rows, key=lambda row: (row.kind not in WASTE, -(row.cost or 0.0), -row.hours))


def _row(pool: Pool, namespace: str, kind: Kind, resource: str, of_pods: Sequence[PodHours]) -> Row:
    hours = sum(each.hours for each in of_pods)
    price = None if kind == "pending" else pool.price_per_device_hour
    largest = nlargest(_MOST_PODS, of_pods, key=attrgetter("hours"))
    return Row(
        pool.name,
        namespace,
        kind,
        resource,
        sum(each.devices for each in of_pods),
        hours,
        None if price is None else price * hours,
        tuple(each.name for each in largest),
        tuple(dict.fromkeys(each.node for each in largest if each.node)),
    )


def _requested(
    state: PoolState,
    window: Window,
    use: Mapping[tuple[str, str], Use],
    limit: Limit | None,
) -> Iterator[PodHours]:
    present = set()
    for pod, by_name in state.requests:
        name = pod.owned.namespace, pod.owned.name
        present.add(name)
        of_device = None
        if use:
            all_devices = sum(by_name.values())
            of_device = Use(*(hours / all_devices for hours in use.get(name, Use())))
        for kind, is_now, hours in _of_device(pod, window, of_device, limit):
            for resource, count in by_name.items():
                devices = count if is_now else 0
                yield PodHours(*name, pod.node, hours * count, kind, resource, devices)
    for run in limit.past if limit else ():
        node = state.nodes.get(run.node)
        if node and node.offered and (run.namespace, run.name) not in present:
            yield run._replace(resource=next(iter(node.offered)))


def _of_device(
    pod: RunningPod, window: Window, use: Use | None, limit: Limit | None
) -> Iterator[tuple[Kind, bool, float]]:
    """Yield each kind of the hours of one device of a Pod, and whether it is so now."""
    times = pod.times
    if waited := window.hours(times.created, times.scheduled if pod.node else None):
        yield "pending", not pod.node, waited
    if not pod.node:
        return
    left = window.hours(times.scheduled)
    yield "held", True, left
    if limit and (beyond := window.hours(times.scheduled + limit.seconds)):
        yield "overtime", True, beyond
    unready_since = times.unready_since(window.end)
    if unready_since is not None:
        not_ready = window.hours(unready_since)
        yield "notReady", True, not_ready
        left -= not_ready
    if use is None:
        return
    is_ready = unready_since is None
    kinds: tuple[tuple[Kind, float], ...] = (("idle", use.idle), ("hung", use.hung))
    for kind, found in kinds:
        if hours := min(found, left):
            yield kind, is_ready, hours
            left -= hours
    unknown = left - (use.worked - use.hung)
    if unknown > _INACCURACY:
        yield "unknown", is_ready, unknown


def _free(state: PoolState, window: Window) -> Iterator[PodHours]:
    """Yield the free devices that nodes lack the CPU, the memory, or the IMEX channel for.

    They have been so at least since the last Pod came to the node. The Pod counts that takes the
    most beyond the needs of its devices.
    """
    typical = {name: _typical(state.requests, name) for name in state.offered}
    for node in state.nodes.values():
        for resource, free in node.free.items() if node.pods else ():
            holder = next((pod for pod in node.pods if _holds_channel(pod)), None)
            blocked, since = free, holder.times.scheduled if holder else 0.0
            if holder is None:
                blocked, holder = _without_room(node, free, typical[resource])
                since = max(each.times.scheduled for each in node.pods)
            if blocked > 0:
                name = holder.owned.namespace, holder.owned.name
                hours = blocked * window.hours(since)
                yield PodHours(*name, node.name, hours, "stranded", resource, blocked)


def _holds_channel(pod: RunningPod) -> bool:
    return any(finding.reason == TAKES_CHANNEL for finding in pod.decision.findings)


def _typical(requests: Requests, resource: str) -> list[int]:
    """Return the median CPU and memory for each device of the Pods that request the resource."""
    own = [(pod.host, sum(by_name.values())) for pod, by_name in requests if resource in by_name]
    return [median_low(host[which] // devices for host, devices in own) for which in (0, 1) if own]


def _without_room(node: PoolNode, free: int, typical: Sequence[int]) -> tuple[int, RunningPod]:
    """Return how many free devices lack CPU or memory, and the Pod that takes the most of it.

    A device needs what is typical for its name in its pool, but not more than its share of what
    node agents leave, and not less than the part of it that the rule demands.
    """
    found = 0, node.pods[0]
    for which, room in enumerate(node.room):
        agents = sum(pod.host[which] for pod in node.pods if pod.is_agent)
        share = max(1, (room - agents) // sum(node.offered.values()))
        need = min(share, typical[which]) if typical else share
        need = max(need, -(-share // LEAST))
        if room:
            taken = sum(pod.host[which] for pod in node.pods)
            blocked = free - max(0, room - taken) // need
            excess = [pod.host[which] - need * sum(pod.devices.values()) for pod in node.pods]
            if blocked > found[0]:
                found = blocked, node.pods[excess.index(max(excess))]
    return found
