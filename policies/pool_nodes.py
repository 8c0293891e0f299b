"""The known nodes of each pool, and the labels of all its nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial, reduce
from operator import and_, or_

from policies.kubernetes.nodes import NodeIndex, NodeSet
from policies.kubernetes.scheduling import Alternative
from policies.kubernetes.selector import Selector
from policies.policy import Policy, Pool

EVERY_NODE: Selector = {"kubernetes.io/os": ("linux",)}
"""What kubelets set on the nodes of every pool: GPU containers are Linux containers."""


class NodesOfPools:
    """The known nodes of each pool.

    A new node often has its taint and its devices before its labels. Until it has the labels of a
    pool, its taints and devices tell. Nodes with a DRA driver may never have labels. The nodes of a
    pool without labels are those with its devices. Devices of a network, which are accessible from
    other nodes as well, make none of these a node of the pool.
    """

    def __init__(self, policy: Policy, nodes: NodeIndex) -> None:
        having = {
            pool: reduce(or_, map(nodes.having, filter(pool.offers, nodes.resources())), 0)
            for pool in policy.pools
        }
        self._labeled = {
            pool: nodes.accepted_by(Alternative({}, pool.requirements, (), ""))
            if pool.selector
            else having[pool]
            for pool in policy.pools
        }
        of_no_pool = ~reduce(or_, self._labeled.values(), 0)
        unlabeled = {
            # Some nodes have all labels, and one that leaves them out.
            pool: of_no_pool & ~nodes.selected_by(pool.selector) if pool.without else of_no_pool
            for pool in policy.pools
        }
        self._publishing = {
            pool: (unlabeled[pool] if pool.selector else -1)
            & reduce(or_, map(nodes.publishing, filter(pool.offers, nodes.published())), 0)
            for pool in policy.pools
        }
        self._without_labels = {
            pool: unlabeled[pool] & (having[pool] | self._publishing[pool]) if pool.selector else 0
            for pool in policy.pools
        }
        self._nodes = {
            pool: labeled | of_no_pool & (_fenced(pool, labeled, nodes) | having[pool])
            for pool, labeled in self._labeled.items()
        }
        self.all: NodeSet = reduce(or_, self._nodes.values(), 0)
        """The nodes of any pool."""
        self._pools: dict[int, tuple[Pool, ...]] = {}

    def with_labels(self, pools: Iterable[Pool]) -> NodeSet:
        """Return the nodes with the labels of one of the pools, or of a pool without labels."""
        return _union(self._labeled, pools)

    def without_labels(self, pools: Iterable[Pool]) -> NodeSet:
        """Return the nodes from which devices of the pools are accessible, without any labels.

        None of a pool without labels.
        """
        return _union(self._without_labels, pools)

    def of(self, pool: Pool) -> NodeSet:
        """Return the nodes of the pool."""
        return self._nodes[pool]

    def of_any(self, pools: Iterable[Pool]) -> NodeSet:
        """Return the nodes of one of the pools."""
        return _union(self._nodes, pools)

    def publishing_without_labels(self, pools: Iterable[Pool]) -> NodeSet:
        """Return the nodes for which DRA drivers publish devices of the pools, without labels.

        Of a pool without labels, all of them.
        """
        return _union(self._publishing, pools)

    def lacking_labels(self, pool: Pool) -> NodeSet:
        """Return the nodes with devices of the pool that GPU Pods need labels to get."""
        return self._without_labels[pool] & ~self._publishing[pool]

    def pools_with(self, number: int) -> tuple[Pool, ...]:
        """Return the pools of the node with this number."""
        pools = self._pools.get(number)
        if pools is None:
            pools = tuple(pool for pool, numbers in self._nodes.items() if numbers >> number & 1)
            self._pools[number] = pools
        return pools


def _union(nodes: Mapping[Pool, NodeSet], pools: Iterable[Pool]) -> NodeSet:
    return reduce(or_, map(nodes.__getitem__, pools), 0)


def _fenced(pool: Pool, labeled: NodeSet, nodes: NodeIndex) -> NodeSet:
    """Return the nodes whose taints are those of the pool.

    Of taints that each node with the labels of the pool has, a node needs all.
    """
    of_each = {taint: nodes.fenced_by((taint,)) for taint in pool.fence}
    common = [found for found in of_each.values() if not labeled & ~found]
    others = [found for found in of_each.values() if not labeled or labeled & ~found]
    return reduce(or_, others, reduce(and_, common) if common else 0)


def nodes_of_pools(policy: Policy, nodes: NodeIndex) -> NodesOfPools:
    """Return the known nodes of each pool, computed once until a node changes."""
    return nodes.derive(policy, partial(NodesOfPools, policy, nodes))


def selector_of_every_node(pool: Pool) -> Selector:
    """Return the labels of every node of the pool, also of one that an autoscaler adds."""
    return {**EVERY_NODE, **pool.selector}
