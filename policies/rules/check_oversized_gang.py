"""Workload whose Pods can never all run at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from sys import maxsize
from typing import NamedTuple

from policies.context import Context
from policies.finding import Finding
from policies.kubernetes.gangs import (
    fewest_pods,
    group_of,
    is_gang,
    is_in_turns,
    pods_at_a_time,
    together,
)
from policies.kubernetes.nodes import NodeIndex, NodeSet
from policies.kubernetes.paths import descend
from policies.kubernetes.pod import Pod
from policies.policy import Pool
from policies.reach import most_added, selected_nodes
from policies.requests import describe_counts, needed_devices
from policies.vocabulary import describe_pools
from policies.wording import capitalized

ID = "oversized-gang"

_MOST_PARTS = 20
"""Each template with devices is compared with each other one. Objects have a few."""

_MOST_DOMAINS = 1000
"""A topology with more domains is unknown: each of them counts for a gang that is too large."""


class _Part(NamedTuple):
    """The Pods of one template that run at a time, and the devices that each of them needs."""

    pod: Pod
    pools: Collection[Pool]
    pods: int
    path: str
    replicas: int
    needed: Mapping[str, int]


def check(pod: Pod, context: Context) -> Iterator[Finding]:
    """Yield a warning if the Pods of the object never run at a time. It never denies."""
    root = pod.template.root
    if not root:
        return
    pods = context.siblings or (pod,)
    # The first Pod that may have devices stands for all of them.
    first = next(
        (each for each in pods if each.device_resources or each.spec.resource_claims), None
    )
    if first is not pod:
        return
    fewest = _fewest(pods, context)
    if not (is_gang(root) or fewest):
        return
    parts = [*_parts(pods, context)]
    if len(parts) < len(pods):
        return
    surplus = max(0, sum(part.pods for part in parts) - fewest) if fewest else 0
    parts = [part for part in parts if part.pods and part.needed]
    if len(parts) > _MOST_PARTS:
        return
    for gang in [[part] for part in parts] if is_in_turns(root) else [parts]:
        found = next(_too_large(gang, surplus, context), None)
        if found is not None:
            yield found
            return


def _fewest(pods: tuple[Pod, ...], context: Context) -> int | None:
    """Return with how many Pods the object starts, by its PodGroup, its Workload, or itself."""
    template, gangs = pods[0].template, context.facts.gangs
    groups = {group_of(each.template) for each in pods}
    name = descend(template.root, ("metadata", "name"))
    for key in (f"{template.kind}/{name}", *(groups if len(groups) == 1 else ())):
        if (fewest := gangs.get((context.request.namespace, key))) is not None:
            return fewest
    return fewest_pods(template.root)


def _parts(pods: tuple[Pod, ...], context: Context) -> Iterator[_Part]:
    """Yield the part of each template, if everything about it is known."""
    for pod in pods:
        own = Context.of(pod, context.policy, context.request, context.facts)
        at_a_time = pods_at_a_time(pod.template)
        if at_a_time and all(request.certain for request in own.device_requests):
            yield _Part(pod, own.requested_pools, *at_a_time, needed_devices(pod, own))


def _too_large(parts: list[_Part], surplus: int, context: Context) -> Iterator[Finding]:
    """Yield a finding for all that the parts exceed, at the part with the most Pods."""
    nodes, namespace = context.facts.nodes, context.request.namespace
    if nodes is not None:
        for part in sorted(parts, key=lambda each: -each.pods):
            yield from _beyond_nodes(part, parts, surplus, nodes, context)
        for part in parts if not surplus else ():
            yield from _beyond_domains(part, nodes, context)
    quota = context.facts.quotas.get(namespace, {})
    for part in parts:
        for name in part.needed:
            wanted = _devices(parts, name, surplus)
            if wanted > quota.get(name, wanted):
                there_is = f"the quota of namespace {namespace} allows {quota[name]}"
                cure = f"Lower {part.path}, or request a larger quota"
                yield _finding(part, f"needs {wanted} {name}", there_is, cure)


def _beyond_nodes(
    part: _Part, parts: list[_Part], surplus: int, nodes: NodeIndex, context: Context
) -> Iterator[Finding]:
    """Yield what the nodes of the pools have no room for: Pods as large as these, or devices.

    CPU and memory do not count, and neither does what runs there: there is no more room than this.
    """
    as_large = [each for each in parts if _covers(each.needed, part.needed)]
    wanted = sum(each.pods for each in as_large) - surplus
    where, added = _nodes_of(as_large, part.needed, nodes, context)
    if maxsize in added.values():
        return
    room = nodes.room_for(part.needed, where, wanted)
    room += min(added[name] // count for name, count in part.needed.items())
    # If not even one Pod fits, unschedulable-gpu-pod reports it.
    if not room:
        return
    place = f"the nodes of {describe_pools(part.pools)} that they select"
    place += ", with those that autoscalers can add," if any(added.values()) else ""
    cure = f"Lower {part.path}, " if part.pods > 1 else ""
    cure = "Let it start with fewer Pods, " if surplus else cure
    cure = capitalized(f"{cure}request fewer devices for each Pod, or add nodes")
    if room < wanted:
        wants = f"runs {wanted} Pods with {describe_counts(part.needed)} each"
        yield _finding(part, wants, f"{place} have room for {room} of them", cure)
    for name in part.needed:
        users = [each for each in parts if name in each.needed]
        where, added = _nodes_of(users, (name,), nodes, context)
        wanted = _devices(parts, name, surplus)
        if wanted > (room := nodes.total_offer(name, where) + added[name]):
            yield _finding(part, f"needs {wanted} {name}", f"{place} have {room}", cure)


def _beyond_domains(part: _Part, nodes: NodeIndex, context: Context) -> Iterator[Finding]:
    """Yield what has to run in one domain of a topology, and is larger than any of them."""
    where, added = _nodes_of([part], part.needed, nodes, context)
    if any(added.values()):
        return
    each = describe_counts(part.needed)
    for key, wanted, groups in together(part.pod.template, part.pods, part.replicas):
        rooms = [*nodes.rooms_for(part.needed, where, key, _MOST_DOMAINS)]
        fitting, largest = sum(room >= wanted for room in rooms), max(rooms, default=0)
        wants = f"runs {wanted} Pods with {each} each in one {key}"
        there_is = f"no {key} of the nodes that they select has room for more than {largest}"
        cure = f"Lower {part.path}, or let its Pods run in several {key}"
        if fitting:
            wants = f"needs {groups} {key} with room for {wanted} Pods with {each} each"
            there_is = f"the nodes that they select have {fitting}"
            cure = f"Lower the replicas, or let them share a {key}"
        # Without room for one Pod, nodes lack the label of the topology.
        if largest and fitting < groups:
            yield _finding(part, wants, there_is, cure)


def _finding(part: _Part, wants: str, there_is: str, cure: str) -> Finding:
    detail = f"this {part.pod.kind} {wants} at a time, and {there_is}, so it never runs as a whole"
    return Finding(ID, part.path, "its Pods can never all run at a time", detail, cure, "warn")


def _nodes_of(
    parts: list[_Part], names: Collection[str], nodes: NodeIndex, context: Context
) -> tuple[NodeSet, dict[str, int]]:
    """Return the nodes that the parts select, and the devices that autoscalers can add to them.

    An unknown number is ``maxsize``.
    """
    all_selected: NodeSet = 0
    added: dict[str, dict[str, int]] = {name: {} for name in names}
    for part in parts:
        selected = selected_nodes(part.pod, part.pools, context, nodes)
        all_selected |= selected
        for name in names:
            more = most_added(part.pod, part.pools, name, nodes, context)
            if more is None or not selected:
                return all_selected, dict.fromkeys(names, maxsize)
            added[name] |= more
    return all_selected, {name: sum(more.values()) for name, more in added.items()}


def _covers(needed: Mapping[str, int], other: Mapping[str, int]) -> bool:
    return all(needed.get(name, 0) >= count for name, count in other.items())


def _devices(parts: list[_Part], name: str, surplus: int) -> int:
    """Return how many devices of a name the parts need at a time."""
    counts = [(part.needed[name], part.pods) for part in parts if name in part.needed]
    return sum(count * pods for count, pods in counts) - surplus * max(counts)[0]
