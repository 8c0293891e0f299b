"""The devices that the nodes of a pool offer, and whether one node has enough for a Pod."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain

from policies.facts import Facts
from policies.kubernetes.nodes import Node
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import accepts, can_match
from policies.policy import Pool


def nodes_of(pool: Pool, facts: Facts) -> Iterator[Node]:
    """Yield the known nodes of the pool."""
    if facts.nodes is not None:
        yield from facts.nodes.with_labels(pool.node_selector)


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
    short: list[Node] = []
    # Mostly, the first node has enough.
    for node in chain.from_iterable(nodes_of(pool, facts) for pool in pools):
        if any((node.allocatable or {}).values()) and any(shortages(node, needed)):
            short.append(node)
        elif _selects(pod, node):
            return {}
    if any(_can_add(pod, pool, needed, facts) for pool in pools):
        return {}
    offers = [node.allocatable or {} for node in short if _selects(pod, node)]
    return {name: max(offer.get(name, 0) for offer in offers) for name in needed} if offers else {}


def _can_add(pod: Pod, pool: Pool, needed: Mapping[str, int], facts: Facts) -> bool:
    return any(
        template.promises(pool.node_selector)
        and template.offers(needed)
        and any(can_match(alternative, template.labels) for alternative in pod.selection())
        for template in facts.templates
    )


def _selects(pod: Pod, node: Node) -> bool:
    return any(accepts(alternative, node.name, node.labels) for alternative in pod.selection())
