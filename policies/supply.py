"""The devices that the nodes of a pool offer, and whether one node has enough for a Pod."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import reduce
from operator import or_

from policies.facts import Facts
from policies.kubernetes.nodes import Node, NodeIndex, NodeSet
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import can_match
from policies.policy import Pool


def nodes_of(pool: Pool, facts: Facts) -> Iterator[Node]:
    """Yield the known nodes of the pool."""
    if facts.nodes is not None:
        yield from facts.nodes.nodes(facts.nodes.with_labels(pool.node_selector))


def shortages(node: Node, needed: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield each resource of which the node offers fewer than needed, and their number."""
    offered = node.allocatable or {}
    for resource, count in needed.items():
        if offered.get(resource, 0) < count:
            yield resource, offered.get(resource, 0)


def largest_offers(
    pod: Pod, pools: Collection[Pool], needed: Mapping[str, int], facts: Facts
) -> dict[str, int]:
    """Return the most that a node offers of each needed resource, if no node offers all of them.

    Only the nodes of the pools that the Pod selects count. The result is empty if one of them has
    enough, if there are none, or if one of them has no devices: its device plugin may register them
    later. It is also empty if an autoscaler can add a node that has enough.
    """
    nodes = facts.nodes
    if nodes is None:
        return {}
    of_pools = reduce(or_, (nodes.with_labels(pool.node_selector) for pool in pools), 0)
    selected = of_pools & pod.selected_nodes(nodes).all
    if not selected or selected & ~_short(nodes, needed):
        return {}
    if any(_can_add(pod, pool, needed, facts) for pool in pools):
        return {}
    return {name: nodes.largest_offer(name, selected) for name in needed}


def _short(nodes: NodeIndex, needed: Mapping[str, int]) -> NodeSet:
    """Return the nodes with devices that do not offer all that is needed."""
    with_devices = reduce(or_, map(nodes.offering, nodes.resources()), 0)
    enough = with_devices
    for name, count in needed.items():
        enough &= nodes.offering(name, count)
    return with_devices & ~enough


def _can_add(pod: Pod, pool: Pool, needed: Mapping[str, int], facts: Facts) -> bool:
    return any(
        template.promises(pool.node_selector)
        and template.offers(needed)
        and any(can_match(alternative, template.labels) for alternative in pod.selection())
        for template in facts.templates
    )
