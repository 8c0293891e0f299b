"""The current state of the pools: nodes, held and free devices, trespassing Pods, and problems."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from policies.candidates import describe_labels
from policies.finding import Finding
from policies.kubernetes.claims import class_of_resource
from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import Node, NodeIndex, Room
from policies.kubernetes.scheduling import Taint
from policies.policy import Policy, Pool
from policies.pool_nodes import NodesOfPools, nodes_of_pools
from policies.reach import is_meant_for, promises
from policies.vocabulary import describe_pools, exclusion
from webhook.tools.audit.judge import NodeDetails, RunningPod
from webhook.tools.audit.stack import StackProblem

WITHOUT_TAINT = "gpu-node-without-taint"
WITHOUT_LABEL = "gpu-node-without-label"
IN_TWO_POOLS = "gpu-node-in-two-pools"


Requests = list[tuple[RunningPod, Mapping[str, int]]]
"""Pods, and how many devices of a pool each of them holds or waits for, by name."""


@dataclass(slots=True)
class PoolNode:
    """A node of a pool.

    ``offered``, ``held`` and ``free`` count devices by name. ``unselected`` are the pools whose
    devices the node offers, and whose labels it lacks: their GPU Pods do not select it.
    """

    name: str
    offered: Mapping[str, int]
    unselected: Sequence[Pool]
    has_taint: bool
    room: Room
    details: NodeDetails
    shared: Sequence[Pool] = ()
    """Other pools of the node, whose nodes not every Pod may use."""
    pods: list[RunningPod] = field(default_factory=list)
    requests: Requests = field(default_factory=list)
    trespassers: list[RunningPod] = field(default_factory=list)

    @property
    def holdings(self) -> list[tuple[RunningPod, str, int]]:
        """The Pods that hold devices of the node, with the name and the number of these."""
        return [(pod, *each) for pod, devices in self.requests for each in devices.items()]

    @property
    def held(self) -> Counter[str]:
        return _sum(devices for _, devices in self.requests)

    @property
    def free(self) -> dict[str, int]:
        held = self.held
        return {name: max(0, count - held[name]) for name, count in self.offered.items()}


@dataclass(slots=True)
class PoolState:
    """A pool and its nodes by name.

    ``taint`` is the one of its taints that most nodes have, to add it to others.
    """

    pool: Pool
    nodes: dict[str, PoolNode]
    taint: Taint | None = None
    requests: Requests = field(default_factory=list)

    @property
    def offered(self) -> Counter[str]:
        return _sum(node.offered for node in self.nodes.values())

    @property
    def free(self) -> Counter[str]:
        return _sum(node.free for node in self.nodes.values())

    @property
    def requested(self) -> Counter[str]:
        return _sum(devices for _, devices in self.requests)

    @property
    def waiting(self) -> Counter[str]:
        return _sum(devices for pod, devices in self.requests if not pod.node)

    @property
    def trespassers(self) -> int:
        return sum(len(node.trespassers) for node in self.nodes.values())


def _sum(parts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return total


def pool_states(
    policy: Policy,
    nodes: NodeIndex | None,
    pods: Iterable[RunningPod] = (),
    details: Mapping[str, NodeDetails] = MappingProxyType({}),
    provided: frozenset[str] = frozenset(),
) -> list[PoolState]:
    """Return the state of each pool, in the policy's order; nothing if the nodes are unknown.

    A node is in the state of each pool that it belongs to, and its devices count in one of them.
    ``provided`` are the DeviceClasses that provide an extended resource: their devices count under
    its name.
    """
    if nodes is None:
        return []
    known = nodes_of_pools(policy, nodes)
    states = {pool: PoolState(pool, {}, _usual_taint(pool, known, nodes)) for pool in policy.pools}
    for node in sorted(nodes, key=lambda node: _natural(node.name)):
        number = nodes.number(node.name)
        own = known.pools_with(number)
        offered = {
            name: count
            for name, count in node.offers.items()
            if count > 0
            and name not in node.remote
            and class_of_resource(name) not in provided
            and policy.counts(name)
        }
        foreign = [name for name in offered if not any(pool.offers(name) for pool in own)]
        unselected = [
            pool
            for pool in policy.pools
            if known.lacking_labels(pool) >> number & 1 or any(map(pool.offers, foreign))
        ]
        for pool in own:
            states[pool].nodes[node.name] = PoolNode(
                node.name,
                {n: c for n, c in offered.items() if _pool_of_device(n, node, own) is pool},
                unselected,
                has_taint=not pool.fence or node.is_fenced_by(pool.taints),
                room=node.room,
                details=details.get(node.name, NodeDetails()),
                shared=[other for other in policy.neighbors(pool) if other in own],
            )
    for pod in pods:
        placed = nodes.get(pod.node)
        own = () if placed is None else known.pools_with(nodes.number(pod.node))
        for state in states.values():
            _count(pod, state, _devices(pod, state.pool, policy, placed, own))
    return [*states.values()]


def _devices(
    pod: RunningPod, pool: Pool, policy: Policy, node: Node | None, own: Sequence[Pool]
) -> dict[str, int]:
    """Return the pool's devices that the Pod holds; of a Pod without a node, those it waits for.

    A Pod that several pools can take waits for the devices of each.
    """
    devices = {}
    for name, count in pod.devices.items():
        if node is not None and own and name not in node.remote:
            pools: Sequence[Pool] = [_pool_of_device(name, node, own)]
        else:
            offering = policy.pools_of_device(name)
            pools = [each for each in offering if each.name in pod.decision.pools] or offering
        if pool in pools:
            devices[name] = count
    return devices


def _pool_of_device(name: str, node: Node, own: Sequence[Pool]) -> Pool:
    """Return which of a node's own pools has its devices of this name.

    Of several that offer it, that is the one whose taint the node has. Devices that none offers
    belong to a node with the labels of another pool.
    """
    offering = [pool for pool in own if pool.offers(name)] or own
    return next((pool for pool in offering if node.is_fenced_by(pool.taints)), offering[0])


def _count(pod: RunningPod, state: PoolState, devices: dict[str, int]) -> None:
    node, pools = state.nodes.get(pod.node), pod.decision.pools
    if any(devices.values()):
        state.requests.append((pod, devices))
    if node is None:
        return
    node.pods.append(pod)
    if devices:
        node.requests.append((pod, devices))
    belongs = state.pool.name in pools if pools else bool(devices)
    if not (belongs or pod.is_agent or pod.decision.exemption):
        node.trespassers.append(pod)


def _natural(name: str) -> list[str | int]:
    """Return a key that sorts gpu-2 before gpu-10: texts and numbers alternate in it."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


class NodeFindings(NamedTuple):
    """The findings of one node."""

    name: str
    findings: tuple[Finding, ...]


def node_findings(states: Iterable[PoolState]) -> list[NodeFindings]:
    """Return the nodes with findings.

    gpufence does not reject Nodes, so these findings are warnings.
    """
    by_node: dict[str, list[tuple[PoolNode, PoolState]]] = {}
    for state in states:
        for node in state.nodes.values():
            by_node.setdefault(node.name, []).append((node, state))
    found = (NodeFindings(name, tuple(_of_node(own))) for name, own in by_node.items())
    return [each for each in found if each.findings]


def _of_node(memberships: Sequence[tuple[PoolNode, PoolState]]) -> Iterator[Finding]:
    node = memberships[0][0]
    offers = ", ".join(f"{n}: {c}" for each, _ in memberships for n, c in each.offered.items())
    belongs = f"the node offers {offers}" if offers else "the node has the labels of the pool"
    for state in (state for each, state in memberships if not each.has_taint):
        pool = state.pool
        taints = " or ".join(map(str, pool.taints))
        yield Finding(
            WITHOUT_TAINT,
            "spec.taints",
            "a GPU node lacks the taint of its pool",
            f"{belongs}, so it belongs to pool {pool.name}, but it has no taint {taints}; every "
            "Pod can run on it",
            f"Run kubectl taint node {node.name} {state.taint}",
            "warn",
        )
    pairs = {
        frozenset((state.pool, other)): (state.pool, other)
        for each, state in memberships
        for other in each.shared
    }
    for pool, other in pairs.values():
        yield Finding(
            IN_TWO_POOLS,
            "metadata.labels",
            "a GPU node belongs to two pools",
            f"the node has the labels of {describe_pools([pool, other])}; GPU Pods that may not "
            f"use pool {other.name} are kept off it",
            f"Remove the labels of one pool, or add {exclusion(other, pool)} to matchExpressions "
            f"of pool {pool.name} in the policy",
            "warn",
        )
    if node.unselected:
        holders = [state.pool for each, state in memberships if each.offered]
        pool = next((each for each in holders if each in node.unselected), node.unselected[0])
        labels = " ".join(
            f"{key}={values[0] if len(values) == 1 else 'VALUE'}"
            for key, values in pool.selector.items()
        )
        yield Finding(
            WITHOUT_LABEL,
            "metadata.labels",
            "a GPU node lacks the labels of its pool",
            f"the node offers {offers or 'devices'} of pool {pool.name}, but not its labels; GPU "
            f"Pods run only on nodes with {describe_labels(pool)}",
            f"Run kubectl label node {node.name} {labels}",
            "warn",
        )


def _usual_taint(pool: Pool, known: NodesOfPools, nodes: NodeIndex) -> Taint | None:
    counts = Counter(
        taint
        for node in nodes.nodes(known.of(pool))
        for taint in node.taints
        if any(own.includes(taint) for own in pool.fence)
    )
    if counts:
        return min(counts, key=lambda taint: (-counts[taint], taint))
    first = next(iter(pool.fence), None)
    return first and replace(first, value=first.value or "present")


def label_problems(
    policy: Policy, nodes: NodeIndex, templates: Sequence[NodeTemplate]
) -> Iterator[StackProblem]:
    """Yield pools whose labels nothing has, and templates for pools whose labels they lack.

    gpufence requires the labels of GPU Pods. Without them, Pods stay Pending.
    """
    known = nodes_of_pools(policy, nodes)
    for pool in policy.pools:
        if known.with_labels([pool]) or known.publishing_without_labels([pool]):
            continue
        if not pool.selector:
            continue
        if not any(promises(template, pool) for template in templates):
            yield StackProblem(
                f"no node has the labels of pool {pool.name} ({describe_labels(pool)}), and no "
                "node template promises them: its GPU Pods stay Pending",
                "Correct nodeSelector, or add the labels to the node group or the template",
            )
    for template in templates:
        pools = [pool for pool in policy.pools if is_meant_for(template, pool)]
        if pools and all(p.selector and not promises(template, p) for p in pools):
            labels = " or ".join(f"{describe_labels(pool)} (pool {pool.name})" for pool in pools)
            yield StackProblem(
                f"{template.name} is for GPU nodes, but does not promise the labels {labels}: no "
                "node is added for GPU Pods",
                "Add the labels to the template, or select the pool by a label of the template: "
                "see gpufence policy discover",
            )
