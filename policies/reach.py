"""Pools whose nodes a Pod can be placed on, or selects, in addition to those that it requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from policies.context import Context
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import Alternative, can_match, confines, surely_accepts
from policies.policy import Policy, Pool

DAEMON_SET_CONTROLLER = "system:serviceaccount:kube-system:daemon-set-controller"
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"

EVERY_NODE = {"kubernetes.io/os": "linux"}
"""What kubelets set on the nodes of every pool: GPU containers are Linux containers."""


def foreign_pools(pod: Pod, context: Context) -> list[Pool]:
    """Return the pools that the Pod may reach and does not request, by the keys that it names.

    A cluster may have many pools, and most Pods name the keys of few of them.
    """
    spec = pod.spec
    if not (spec.tolerations or spec.node_selector or spec.affinity or spec.node_name):
        return []
    requested = context.requested_pools
    if len(requested) == len(context.policy.pools) or is_mirror_pod(pod, context):
        return []
    return [pool for pool in _pools_by_key(pod, context) if pool not in requested]


def _pools_by_key(pod: Pod, context: Context) -> Iterable[Pool]:
    policy, nodes = context.policy, context.facts.nodes
    keys = {toleration.key or "" for toleration in pod.spec.tolerations or ()}
    if "" in keys:
        return policy.pools
    keys.update(pod.spec.node_selector or ())
    for alternative in pod.selection() if pod.spec.affinity else ():
        keys.update([expression.key or "" for expression in alternative.expressions])
    reached: set[Pool] = set()
    for node in _named_nodes(pod, nodes) if nodes is not None else ():
        keys.update(node.labels)
        keys.update(taint.key for taint in node.taints)
        for name in node.allocatable or ():
            reached.update(policy.pools_of_resource(name))
    for key in keys.intersection(policy.pools_by_key):
        reached.update(policy.pools_by_key[key])
    return [pool for pool in policy.pools if pool in reached] if reached else ()


def _named_nodes(pod: Pod, nodes: NodeIndex) -> Iterator[Node]:
    """Yield the node that the Pod is bound to, and one that each alternative accepts.

    A finding needs all accepted nodes in one pool, so the first one names the pool.
    """
    for alternative in pod.selection():
        yield from islice(nodes.accepted_by(alternative), 1)
    bound_to = named_node(pod, nodes)
    if bound_to is not None:
        yield bound_to


def belongs_to(node: Node, pool: Pool, policy: Policy) -> bool:
    """Return whether the node belongs to the pool.

    A new node often has its taint and its devices before its labels. Until it has the labels of a
    pool, its taints and devices tell.
    """
    return pool.contains(node) or _is_unlabeled(node, pool, policy)


def unlabeled_nodes(pool: Pool, policy: Policy, nodes: NodeIndex) -> Iterator[Node]:
    """Yield the nodes with a taint or devices of the pool that have the labels of no pool."""
    keys = {taint.key for taint in pool.taints}
    for node in nodes.marked(lambda mark: mark in keys or mark in pool.resources):
        if not pool.contains(node) and _is_unlabeled(node, pool, policy):
            yield node


def _is_unlabeled(node: Node, pool: Pool, policy: Policy) -> bool:
    if not (node.taints or node.allocatable):
        return False
    offers = any(
        count and name in pool.resources for name, count in (node.allocatable or {}).items()
    )
    if not (offers or node.is_fenced_by(pool.taints)):
        return False
    return not any(other.contains(node) for other in policy.pools)


def is_confined(pod: Pod, pools: Iterable[Pool]) -> bool:
    """Return whether the Pod can be placed only on nodes of one of the pools."""
    selectors = [pool.node_selector for pool in pools]
    return bool(selectors) and all(
        confines(alternative, selectors) for alternative in pod.selection()
    )


def named_node(pod: Pod, nodes: NodeIndex | None) -> Node | None:
    """Return the node that the Pod's ``nodeName`` binds it to, if it is known."""
    name = pod.spec.node_name
    return nodes.get(name) if name and nodes is not None else None


def is_placed_elsewhere(pod: Pod, pool: Pool, policy: Policy, nodes: NodeIndex) -> bool:
    """Return whether the Pod is bound to, or selects, known nodes outside of the pool only.

    An alternative that accepts no known node may be for nodes that an autoscaler adds, and so is
    one that accepts every node of the pool: the pool may have no nodes at the moment.
    """
    node = named_node(pod, nodes)
    if node is not None:
        return not belongs_to(node, pool, policy)
    selection = pod.selection()
    if any(surely_accepts(alternative, node_labels(pool)) for alternative in selection):
        return False
    if any(any(nodes.accepted_by(alternative, pool.node_selector)) for alternative in selection):
        return False
    return all(
        any(nodes.accepted_by(alternative))
        for alternative in selection
        if can_match(alternative, pool.node_selector)
    )


def node_labels(pool: Pool) -> dict[str, str]:
    """Return labels that every node of the pool carries, also one that an autoscaler adds."""
    return {**EVERY_NODE, **pool.node_selector}


def count_of_pool_only(
    alternative: Alternative, pool: Pool, policy: Policy, nodes: NodeIndex
) -> int:
    """Return how many nodes meet the alternative; 0 if one of them is outside of the pool.

    Also 0 if all known nodes meet it: a selection of everything selects nothing.
    """
    count = 0
    for node in nodes.accepted_by(alternative):
        if not belongs_to(node, pool, policy):
            return 0
        count += 1
    return count if count < len(nodes) else 0


def is_mirror_pod(pod: Pod, context: Context) -> bool:
    """Return whether a kubelet reports a static Pod of its own node.

    The NodeRestriction admission plugin lets a kubelet create mirror Pods bound to itself only.
    """
    return (
        MIRROR_ANNOTATION in (pod.metadata.annotations or ())
        and context.request.username == f"system:node:{pod.spec.node_name}"
    )


def is_daemon_set_pod(pod: Pod, context: Context) -> bool:
    """Return whether the Pod belongs to a DaemonSet, beyond forgery.

    Any client can write an owner reference; it counts only if the DaemonSet controller makes the
    request.
    """
    if pod.kind == "DaemonSet":
        return True
    return context.request.username == DAEMON_SET_CONTROLLER and any(
        owner.controller and owner.kind == "DaemonSet"
        for owner in pod.metadata.owner_references or ()
    )
