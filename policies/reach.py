"""Pools whose nodes a Pod can be placed on, or selects, in addition to those that it requests."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import NamedTuple

from policies.candidates import failing, has_labels
from policies.context import Context
from policies.facts import Facts
from policies.kubernetes.core_v1 import Toleration
from policies.kubernetes.node_templates import NODE_POOL_LABEL, NodeTemplate
from policies.kubernetes.nodes import Node, NodeIndex, NodeSet
from policies.kubernetes.pod import Pod
from policies.kubernetes.quantity import is_rdma_resource_name
from policies.kubernetes.scheduling import Alternative, parses, reached_taint
from policies.kubernetes.selector import (
    can_match,
    can_meet,
    confines,
    narrowed,
    negated,
    requires,
    requires_labels,
    selector_of,
    surely_accepts,
)
from policies.policy import Policy, Pool
from policies.pool_nodes import EVERY_NODE, nodes_of_pools, selector_of_every_node
from policies.requests import DeviceRequest
from policies.vendors import vendor_of

CONTROLLERS = {
    (group, kind): f"system:serviceaccount:kube-system:{name}-controller"
    for group, kind, name in (
        ("apps", "DaemonSet", "daemon-set"),
        ("apps", "Deployment", "deployment"),
        ("apps", "ReplicaSet", "replicaset"),
        ("apps", "StatefulSet", "statefulset"),
        ("batch", "CronJob", "cronjob"),
        ("batch", "Job", "job"),
        ("", "ReplicationController", "replication"),
    )
}
"""The accounts that create the objects of core workloads, by group and kind of the workload.

Source: ``k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy/controller_policy.go``.
"""
CONTROLLER_MANAGER = "system:kube-controller-manager"
"""The account of all controllers, where kube-controller-manager runs without the flag
``--use-service-account-credentials``."""

DAEMON_SET_CONTROLLERS = (CONTROLLER_MANAGER, CONTROLLERS["apps", "DaemonSet"])
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"

_CLOUD_NODE_GROUPS = (
    "alpha.eksctl.io/nodegroup-name",
    "cloud.google.com/gke-nodepool",
    "doks.digitalocean.com/node-pool",
    "eks.amazonaws.com/nodegroup",
    "k8s.scaleway.com/pool-name",
    "kops.k8s.io/instancegroup",
    "kubernetes.azure.com/agentpool",
    "lke.linode.com/pool-id",
)
"""Labels of nodes in groups of a cloud, whose size its autoscaler may change."""

HOST = "kubernetes.io/hostname"
"""The label with the name of a node."""
_MIG = re.compile(r"nvidia\.com/mig-(\dc\.)?\dg\.\d+gb(\.[a-z-]+)*")
"""NVIDIA's slices by their profile, as ``1g.10gb+me`` with a dot in place of the plus sign."""

Closed = Mapping[Pool, Collection[Pool]]
"""By candidate pool, the pools that its nodes can belong to as well, and that the Pod may not
use."""
NOT_CLOSED: Closed = {}

CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
"""Labels of the nodes of the control plane, the second one before Kubernetes 1.24."""


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
        keys.update(alternative.by_key)
    reached: set[Pool] = set()
    if nodes is not None:
        reached.update(_pools_by_nodes(pod, policy, nodes))
    for key in keys.intersection(policy.pools_by_key):
        reached.update(policy.pools_by_key[key])
    return [pool for pool in policy.pools if pool in reached] if reached else ()


def _pools_by_nodes(pod: Pod, policy: Policy, nodes: NodeIndex) -> Iterator[Pool]:
    """Yield the pools of the node that the Pod is bound to, and of alternatives without others."""
    known = nodes_of_pools(policy, nodes)
    for accepted in pod.selected_nodes(nodes).by_alternative:
        if not accepted & ~known.all:
            yield from (pool for pool in policy.pools if known.of(pool) & accepted)
    if (node := named_node(pod, nodes)) is not None:
        yield from known.pools_with(nodes.number(node.name))


def unlabeled_nodes(request: DeviceRequest, nodes: NodeIndex, context: Context) -> NodeSet:
    """Return the nodes with the device, if no node has the labels of a pool of the request.

    The labels of the pool are then those of another cluster, and no node would meet them.
    """
    known = nodes_of_pools(context.policy, nodes)
    if known.with_labels(request.pools):
        return 0
    return known.without_labels(request.pools) & _with_device(request, nodes)


def needs_no_labels(request: DeviceRequest, context: Context) -> bool:
    """Return whether nodes without labels of the pools can meet the request.

    With a DRA driver, the scheduler places a Pod by its devices, and nodes may have no labels. They
    count unless labels are what keeps the Pod off the nodes of an excluded pool.
    """
    if not has_labels(request.pools):
        return True
    nodes = context.facts.nodes
    if nodes is None:
        return False
    if unlabeled_nodes(request, nodes, context):
        return True
    if any(_opened_by(request)):
        return False
    published = nodes_of_pools(context.policy, nodes).publishing_without_labels(request.pools)
    return bool(published & _with_device(request, nodes))


def _opened_by(request: DeviceRequest) -> Iterator[Pool]:
    """Yield the pools that the Pod may not use, and whose taint it tolerates for its own pools."""
    for pool, condition in request.excluded:
        if condition in ("namespace", "size") and all(
            any(
                each.includes(taint) or taint.includes(each)
                for candidate in request.pools
                for each in candidate.tolerated
            )
            for taint in pool.fence
        ):
            yield pool


def opened_without_labels(context: Context) -> list[Pool]:
    """Return the pools that a GPU Pod may not use, and that no label keeps it off."""
    found = {
        pool
        for request in context.device_requests
        if request.certain
        for pool in _opened_by(request)
        if needs_no_labels(request, context)
    }
    return [pool for pool in context.policy.pools if pool in found]


def selects_unlabeled(pod: Pod, request: DeviceRequest, context: Context) -> bool:
    """Return whether the Pod selects a node with the device that has no labels of a pool."""
    nodes = context.facts.nodes
    if nodes is None or not needs_no_labels(request, context):
        return False
    known = nodes_of_pools(context.policy, nodes)
    unlabeled = known.without_labels(request.pools) & _with_device(request, nodes)
    return bool(unlabeled & pod.selected_nodes(nodes).all)


def is_excluded(pod: Pod, context: Context) -> bool:
    """Return whether the Pod's own node selection excludes the nodes with its device."""
    return any(
        each.certain and each.devices and excludes_pools(pod, each, context)
        for each in context.distinct_requests
    )


def excludes_pools(pod: Pod, request: DeviceRequest, context: Context) -> bool:
    """Return whether the Pod's own node selection excludes the candidate pools of a request.

    It excludes all of them or none: one that it excludes is no candidate if another one is left.
    """
    excluded = failing("selection", pod, request, context)
    return bool(excluded) and not selects_unlabeled(pod, request, context)


def _with_device(request: DeviceRequest, nodes: NodeIndex) -> NodeSet:
    return reduce(or_, map(nodes.offering, request.devices), 0)


def pools_of_node(node: Node, context: Context) -> tuple[Pool, ...]:
    """Return the pools that a known node belongs to."""
    nodes = context.facts.nodes
    if nodes is None:
        return ()
    return nodes_of_pools(context.policy, nodes).pools_with(nodes.number(node.name))


def is_confined(pod: Pod, context: Context) -> bool:
    """Return whether the Pod can be placed only on nodes of one of the pools that it requests.

    Where labels are not what places it, its devices do.
    """
    if any(
        each.certain and each.devices and needs_no_labels(each, context)
        for each in context.device_requests
    ):
        return True
    pools = [pool for pool in context.requested_pools if pool.selector]
    return bool(pools) and all(is_within(alternative, pools) for alternative in pod.selection())


def is_within(alternative: Alternative, pools: Iterable[Pool]) -> bool:
    """Return whether only nodes with the labels of one of the pools meet the alternative."""
    fitting = (
        pool.selector
        for pool in pools
        if not any(can_meet(alternative, [negated(each)]) for each in pool.without)
    )
    return confines(alternative, [*fitting])


def pools_by_toleration(
    pod: Pod, tolerations: Iterable[Toleration], context: Context
) -> list[Pool]:
    """Return the foreign pools whose nodes these tolerations of the Pod open to it."""
    return [
        pool
        for pool in foreign_pools(pod, context)
        if any(reached_taint(toleration, pool.taints) for toleration in tolerations)
        and not is_kept_off(pod, pool, context)
    ]


class Named(NamedTuple):
    """The pools that one alternative of a node selection names, and its nodes at present.

    ``nodes`` is 0 if the alternative names the pools by their labels.
    """

    alternative: Alternative
    pools: Sequence[Pool]
    nodes: int = 0


def named_pools(
    pod: Pod, pools: Sequence[Pool], context: Context, closed: Closed = NOT_CLOSED
) -> Iterator[Named]:
    """Yield the foreign pools that each alternative of the Pod's node selection names.

    It names pools by their labels, or because it accepts their known nodes and no others. An
    alternative that accepts every node names none, unless it lists their names.
    """
    nodes = context.facts.nodes
    for index, alternative in enumerate(pod.selection()):
        named = [
            pool
            for pool in pools
            if requires_labels(narrowed(alternative, pool.without), pool.selector)
        ]
        if named:
            yield Named(alternative, named)
        elif nodes is not None:
            accepted = pod.selected_nodes(nodes).by_alternative[index]
            known = nodes_of_pools(context.policy, nodes)
            # A node can belong to a requested pool as well.
            own = {pool: known.of_any(open_by(pool, context, closed)) for pool in pools}
            found = [pool for pool in pools if known.of(pool) & accepted & ~own[pool]]
            outside = reduce(and_, (~known.of(pool) | own[pool] for pool in found), accepted)
            if not outside and _is_choice(alternative, accepted, nodes):
                yield Named(alternative, found, accepted.bit_count())


def _is_choice(alternative: Alternative, accepted: NodeSet, nodes: NodeIndex) -> bool:
    """Return whether the alternative chooses among the nodes, or lists them by their names."""
    names_label = bool(alternative.expressions or alternative.labels.keys() - EVERY_NODE.keys())
    chooses = names_label or bool(alternative.fields)
    return (chooses and accepted.bit_count() < len(nodes)) or _lists_hosts(alternative)


def open_by(pool: Pool, context: Context, closed: Closed) -> Iterator[Pool]:
    """Yield the requested pools whose nodes the Pod may use even if they are of this pool too."""
    return (own for own in context.requested_pools if pool not in closed.get(own, ()))


def chooses_closed_nodes(pod: Pod, closed: Closed, context: Context) -> bool:
    """Return whether the Pod chooses known nodes of its pools, and all of them are closed to it.

    Unless an autoscaler can add another one.
    """
    nodes = context.facts.nodes
    if nodes is None:
        return False
    selected, known = pod.selected_nodes(nodes), nodes_of_pools(context.policy, nodes)
    if not selected.all & known.of_any(context.requested_pools) or any(
        selected.all & known.of(pool) & ~known.of_any(closed.get(pool, ()))
        for pool in context.requested_pools
    ):
        return False
    ways = zip(pod.selection(), selected.by_alternative, strict=True)
    if not all(_is_choice(alternative, accepted, nodes) for alternative, accepted in ways):
        return False
    not_open = {other for each in closed.values() for other in each}
    return not any(
        any(may_meet(template, alternative) for alternative in pod.selection())
        for template in joining(context.requested_pools, context.facts)
        if not any(may_join(template, other) for other in not_open)
    )


def named_node(pod: Pod, nodes: NodeIndex | None) -> Node | None:
    """Return the node that the Pod's ``nodeName`` binds it to, if it is known."""
    name = pod.spec.node_name
    return nodes.get(name) if name and nodes is not None else None


def is_kept_off(pod: Pod, pool: Pool, context: Context) -> bool:
    """Return whether the Pod's own node selection, or its node, keeps it off the pool's nodes.

    An alternative that accepts no known node may be for nodes that an autoscaler adds, and so is
    one that accepts every node of the pool: the pool may have no nodes at the moment.
    """
    nodes, selection = context.facts.nodes, pod.selection()
    if nodes is None:
        return not any(
            pool.can_meet(alternative)
            and (context.request.fail_closed or not selects_control_plane(alternative, pool))
            for alternative in selection
        )
    node = named_node(pod, nodes)
    if node is not None:
        return pool not in pools_of_node(node, context)
    selected = pod.selected_nodes(nodes)
    if selected.all & nodes_of_pools(context.policy, nodes).of(pool):
        return False
    every = selector_of_every_node(pool)
    for alternative, numbers in zip(selection, selected.by_alternative, strict=True):
        if not numbers and pool.can_meet(alternative):
            return False
        if surely_accepts(alternative, every, pool.without):
            return False
    return True


def selects_control_plane(alternative: Alternative, pool: Pool) -> bool:
    """Return whether the alternative requires nodes of the control plane, which no pool has.

    Unless the pool names that label. Known nodes tell better.
    """
    return any(requires(alternative, key, ()) for key in CONTROL_PLANE if key not in pool.selector)


def is_mirror_pod(pod: Pod, context: Context) -> bool:
    """Return whether a kubelet reports a static Pod of its own node.

    The NodeRestriction admission plugin lets a kubelet create mirror Pods bound to itself only.
    """
    return (
        MIRROR_ANNOTATION in pod.annotations
        and context.request.username == f"system:node:{pod.spec.node_name}"
    )


def is_daemon_set_pod(pod: Pod, context: Context) -> bool:
    """Return whether the Pod belongs to a DaemonSet, beyond forgery.

    Any client can write an owner reference; it counts only if the DaemonSet controller makes the
    request.
    """
    if pod.kind == "DaemonSet":
        return True
    return context.request.username in DAEMON_SET_CONTROLLERS and any(
        owner.controller and owner.kind == "DaemonSet"
        for owner in pod.metadata.owner_references or ()
    )


def is_node_agent(pod: Pod, context: Context) -> bool:
    """Return whether the Pod may run on the nodes of every pool, as a Pod of a DaemonSet.

    The DaemonSet controller binds each Pod to its node by a field. In the template, host names are
    the author's; which of them belong to GPU nodes, only the nodes tell.
    """
    lists_hosts = pod.kind == "DaemonSet" and context.facts.nodes is not None and names_hosts(pod)
    return is_daemon_set_pod(pod, context) and not lists_hosts


def names_hosts(pod: Pod) -> bool:
    """Return whether the Pod's node selection lists nodes by their names."""
    return any(map(_lists_hosts, pod.selection()))


def _lists_hosts(alternative: Alternative) -> bool:
    return (
        HOST in alternative.labels
        or any(field.operator == "In" for field in alternative.fields)
        or any(each.key == HOST and each.operator == "In" for each in alternative.expressions)
    )


def largest_offers(
    pod: Pod, pools: Collection[Pool], needed: Mapping[str, int], context: Context
) -> dict[str, int]:
    """Return the most that a node offers of each needed resource, if no node offers all of them.

    The nodes that an autoscaler can add count as well. The result is empty if one of the selected
    nodes has enough, if there are none that count, or if an autoscaler can add one that has enough.
    """
    nodes = context.facts.nodes
    if nodes is None:
        return {}
    selected = selected_nodes(pod, pools, context, nodes)
    if not selected and (len(nodes) or not can_be_added(pod, pools, {}, context.facts)):
        return {}
    if selected & _offering_all(nodes, needed):
        return {}
    if can_be_added(pod, pools, needed, context.facts):
        return {}
    sizes = [each.allocatable or {} for each in _addable(pod, pools, {}, context.facts)]
    return {
        name: max([0, *nodes.offers(name, selected), *(size.get(name, 0) for size in sizes)])
        for name in needed
    }


def rdma_resource_of(
    pod: Pod, pools: Collection[Pool], needed: Mapping[str, int], context: Context
) -> str | None:
    """Return an RDMA resource that every selected node with enough devices offers, if there is one.

    RDMA devices alone do not make a node one of the pools.
    """
    nodes = context.facts.nodes
    if nodes is None:
        return None
    fitting = selected_nodes(pod, pools, context, nodes) & _offering_all(nodes, needed)
    names = filter(is_rdma_resource_name, nodes.resources())
    offered = (name for name in sorted(names) if not fitting & ~nodes.offering(name))
    return next(offered, None) if fitting else None


def selected_nodes(
    pod: Pod, pools: Collection[Pool], context: Context, nodes: NodeIndex
) -> NodeSet:
    """Return the nodes of the pools that the Pod selects.

    The set is empty if one of them has no devices: its device plugin may register them later.
    """
    known = nodes_of_pools(context.policy, nodes)
    of_pools = known.with_labels(pools) | known.publishing_without_labels(pools)
    selected = of_pools & pod.selected_nodes(nodes).all
    devices = (name for name in nodes.resources() if not is_rdma_resource_name(name))
    with_devices = reduce(or_, map(nodes.offering, devices), 0)
    return 0 if selected & ~with_devices else selected


def _offering_all(nodes: NodeIndex, needed: Mapping[str, int]) -> NodeSet:
    """Return the nodes that offer all that is needed; every node if that is nothing."""
    return reduce(and_, (nodes.offering(name, count) for name, count in needed.items()), -1)


def is_meant_for(template: NodeTemplate, pool: Pool) -> bool:
    """Return whether a node of the template belongs to the pool unless it has labels of another."""
    devices = template.allocatable or {}
    return any(count and pool.offers(name) for name, count in devices.items()) or any(
        own.includes(taint) for taint in template.taints for own in pool.taints
    )


def may_join(template: NodeTemplate, pool: Pool) -> bool:
    """Return whether GPU Pods of the pool get a node of the template: it needs the pool's labels.

    The nodes of a pool without labels have its devices or its taint.
    """
    return promises(template, pool) if pool.selector else is_meant_for(template, pool)


def promises(template: NodeTemplate, pool: Pool) -> bool:
    """Return whether a node of the template has the labels of the pool when it joins."""
    return template.promises(pool.selector) and pool.can_meet(
        Alternative(template.labels, tuple(filter(parses, template.requirements)), (), "")
    )


def can_be_added(pod: Pod, pools: Iterable[Pool], needed: Mapping[str, int], facts: Facts) -> bool:
    """Return whether an autoscaler can add a node to one of the pools that has enough."""
    return any(_addable(pod, pools, needed, facts))


def _addable(
    pod: Pod, pools: Iterable[Pool], needed: Mapping[str, int], facts: Facts
) -> Iterator[NodeTemplate]:
    for template in joining(pools, facts):
        if _may_offer(template, needed) and any(may_meet(template, a) for a in pod.selection()):
            yield template


def most_added(
    pod: Pod, pools: Collection[Pool], resource: str, nodes: NodeIndex, context: Context
) -> dict[str, int] | None:
    """Return how many devices each autoscaler can add for the Pod; ``None`` if one is unknown.

    The nodes of a NodePool count towards its limits. Which nodes a cloud's own autoscaler can add,
    and a NodePool that is not listed, the cluster does not say.
    """
    templates = context.facts.templates
    known = {each.labels[NODE_POOL_LABEL] for each in templates if NODE_POOL_LABEL in each.labels}
    selected = selected_nodes(pod, pools, context, nodes)
    listed = nodes.selected_by({NODE_POOL_LABEL: tuple(known)}) if known else 0
    if selected & nodes.selected_by({NODE_POOL_LABEL: ()}) & ~listed or any(
        selected & nodes.selected_by({label: ()}) for label in _CLOUD_NODE_GROUPS
    ):
        return None
    limits = {
        each.labels.get(NODE_POOL_LABEL, each.name): each.limits
        for each in templates
        if each.limits
    }
    added: dict[str, int] = {}
    for each in _addable(pod, pools, {resource: 1}, context.facts):
        name = each.labels.get(NODE_POOL_LABEL, each.name)
        limit = limits.get(name, {}).get(resource)
        if limit is None:
            return None
        of_nodes = nodes.selected_by({NODE_POOL_LABEL: (name,)})
        added[name] = max(0, limit - nodes.total_offer(resource, of_nodes))
    return added


def joining(pools: Iterable[Pool], facts: Facts) -> list[NodeTemplate]:
    """Return the templates whose nodes GPU Pods of the pools can get."""
    every = [*pools]
    return [each for each in facts.templates if any(may_join(each, pool) for pool in every)]


def may_meet(template: NodeTemplate, alternative: Alternative) -> bool:
    """Return whether a node of the template can meet the alternative when it joins.

    It has no label that the template does not promise.
    """
    required = {key: (value,) for key, value in alternative.labels.items()}
    return (
        can_match(alternative, selector_of(template.labels))
        and template.promises(required)
        and all(
            template.promises({key: tuple(each.values or ())})
            for key, about in alternative.by_key.items()
            for each in about
            if each.operator == "In"
        )
    )


def _may_offer(template: NodeTemplate, needed: Mapping[str, int]) -> bool:
    """Return whether a node can have the devices: of an unknown number, those that plugins name."""
    if (offered := template.allocatable) is None:
        return all(map(_is_plausible, needed))
    return all(offered.get(name, 0) >= count for name, count in needed.items())


def _is_plausible(name: str) -> bool:
    """Return whether a device plugin, or a DeviceClass, may provide devices by this name."""
    if name.startswith("nvidia.com/mig-"):
        return bool(_MIG.fullmatch(name))
    vendor = vendor_of(name)
    return vendor is None or vendor.offers(name) or name in vendor.fractional
