"""The short ways of the engine say the same as the long ones."""

from __future__ import annotations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import strategies
from laws.profile import law
from policies import reach
from policies.context import Context
from policies.facts import Facts, Request
from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.objects import MalformedObjectError
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import FENCING_EFFECTS, Alternative, accepts, matches_node
from policies.kubernetes.selector import selects, surely_accepts
from policies.kubernetes.workload import Workload
from policies.policy import Policy, Pool
from policies.pool_nodes import nodes_of_pools, selector_of_every_node
from policies.reach import largest_offers
from specs import JSON
from strategies import as_node

pytestmark = pytest.mark.timeout(3600)

policies = st.sampled_from(list(strategies.policies().values()))


allocatable = st.none() | st.dictionaries(
    st.sampled_from(["nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "amd.com/gpu", "other.com/x"]),
    st.integers(0, 3),
)
gpu_nodes = st.builds(
    lambda node, number, devices, network: Node(
        f"n{number}", node.labels, node.taints, devices, network, frozenset(network)
    ),
    strategies.nodes().map(as_node),
    st.integers(0, 60),
    allocatable,
    st.just({}) | st.just({"nvidia.com/mig-2g.10gb": 1}),
)


@law
@given(strategies.pods(), policies, st.lists(gpu_nodes, max_size=12))
def test_placement_is_what_a_scan_of_all_nodes_finds(
    pod: JSON, policy: Policy, listed: list[Node]
) -> None:
    known = {node.name: node for node in listed}
    index = NodeIndex(listed)
    try:
        [typed] = Workload(pod).pods()
    except MalformedObjectError:
        return
    context = Context.of(typed, policy, Request(), Facts(nodes=index))
    selected = typed.selected_nodes(index).by_alternative
    for alternative, numbers in zip(typed.selection(), selected, strict=True):
        found = {node.name for node in index.nodes(numbers)}
        assert found == {n.name for n in known.values() if accepts(alternative, n.name, n.labels)}
    for pool in policy.pools:
        members = {n.name for n in known.values() if belongs(n, pool, policy)}
        found = {n.name for n in index.nodes(nodes_of_pools(policy, index).of(pool))}
        assert found == members
        kept_off = is_kept_off(typed, pool, known, members)
        assert reach.is_kept_off(typed, pool, context) == kept_off
        for needed in ({"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 3, "amd.com/gpu": 1}, {}):
            offers = largest_of(typed, pool, known, needed, policy)
            assert largest_offers(typed, [pool], needed, context) == offers
        event(f"kept off: {kept_off}")


def belongs(node: Node, pool: Pool, policy: Policy) -> bool:
    """A node with the labels of no pool belongs to the pools of its taints and its devices."""
    if is_labeled(node, pool):
        return True
    taints = (t for t in node.taints if t.effect in FENCING_EFFECTS)
    fenced = any(own.includes(taint) for taint in taints for own in pool.taints)
    offers = any(
        count and name in pool.resources for name, count in (node.allocatable or {}).items()
    )
    labeled = any(is_labeled(node, other) for other in policy.pools)
    return (fenced or offers) and not labeled


def is_labeled(node: Node, pool: Pool) -> bool:
    left_out = not accepts(Alternative({}, pool.without, (), ""), node.name, node.labels)
    return selects(pool.selector, node.labels) and not left_out


def is_kept_off(pod: Pod, pool: Pool, known: dict[str, Node], members: set[str]) -> bool:
    if pod.spec.node_name in known:
        return pod.spec.node_name not in members
    for alternative in pod.selection():
        accepted = {n.name for n in known.values() if accepts(alternative, n.name, n.labels)}
        if accepted & members or surely_accepts(
            alternative, selector_of_every_node(pool), pool.without
        ):
            return False
        if not accepted and pool.can_meet(alternative):
            return False
    return True


def largest_of(
    pod: Pod, pool: Pool, known: dict[str, Node], needed: dict[str, int], policy: Policy
) -> dict[str, int]:
    """Devices of a network count where labels do not keep the Pod off."""
    offers = []
    for node in known.values():
        offer = node.offers
        is_of_pool = bool(pool.selector) and any(is_labeled(node, own) for own in policy.pools)
        left_out = bool(pool.without) and selects(pool.selector, node.labels)
        reaches = not (is_of_pool or left_out) and any(map(pool.offers, node.published))
        if (is_labeled(node, pool) or reaches) and matches_node(pod.spec, node.name, node.labels):
            if not any(offer.values()) or all(offer.get(n, 0) >= c for n, c in needed.items()):
                return {}
            offers.append(offer)
    return {name: max(offer.get(name, 0) for offer in offers) for name in needed} if offers else {}
