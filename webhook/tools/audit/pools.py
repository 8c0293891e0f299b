"""The current state of the pools: nodes, held and free devices, trespassing Pods, and problems."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from policies.candidates import describe_labels
from policies.finding import Finding
from policies.kubernetes.claims import class_of_resource
from policies.kubernetes.node_templates import NodeTemplate
from policies.kubernetes.nodes import Node, NodeIndex
from policies.policy import Policy, Pool
from policies.reach import nodes_of_pools
from webhook.tools.audit.judge import NodeDetails, RunningPod

WITHOUT_TAINT = "gpu-node-without-taint"
WITHOUT_LABEL = "gpu-node-without-label"


@dataclass(frozen=True, slots=True)
class HeldDevices:
    """Devices of one resource that a Pod holds on a node."""

    namespace: str
    pod: str
    resource: str
    count: int


@dataclass(slots=True)
class PoolNode:
    """A node of a pool. ``offered`` and ``held`` count devices by extended resource."""

    name: str
    offered: dict[str, int]
    has_label: bool
    has_taint: bool
    details: NodeDetails
    pods: list[RunningPod] = field(default_factory=list)
    holdings: list[HeldDevices] = field(default_factory=list)
    trespassers: list[RunningPod] = field(default_factory=list)

    @property
    def held(self) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for holding in self.holdings:
            counts[holding.resource] += holding.count
        return dict(counts)

    @property
    def free(self) -> int:
        held = self.held
        return sum(max(0, count - held.get(name, 0)) for name, count in self.offered.items())


@dataclass(slots=True)
class Usage:
    """Devices that a namespace's Pods request: ``placed`` on nodes, and still ``waiting``."""

    placed: int = 0
    waiting: int = 0


@dataclass(slots=True)
class PoolState:
    """A pool and its nodes by name.

    A node belongs to the pool if it has the labels of the pool, or offers its devices. ``requests``
    has the Pods that hold or wait for its devices, and how many.
    """

    pool: Pool
    nodes: dict[str, PoolNode]
    requests: list[tuple[RunningPod, int]] = field(default_factory=list)

    @property
    def allocatable(self) -> int:
        return sum(sum(node.offered.values()) for node in self.nodes.values())

    @property
    def by_namespace(self) -> dict[str, Usage]:
        """The namespaces that request devices of the pool."""
        usages: dict[str, Usage] = {}
        for pod, count in self.requests:
            usage = usages.setdefault(pod.owned.namespace, Usage())
            if pod.node:
                usage.placed += count
            else:
                usage.waiting += count
        return usages

    @property
    def requested(self) -> int:
        return sum(count for _, count in self.requests)

    @property
    def waiting(self) -> int:
        return sum(count for pod, count in self.requests if not pod.node)

    @property
    def free(self) -> int:
        return sum(node.free for node in self.nodes.values())

    @property
    def trespassers(self) -> int:
        return sum(len(node.trespassers) for node in self.nodes.values())


def pool_states(
    policy: Policy,
    nodes: NodeIndex | None,
    pods: Iterable[RunningPod] = (),
    details: Mapping[str, NodeDetails] = MappingProxyType({}),
    provided: frozenset[str] = frozenset(),
) -> list[PoolState]:
    """Return the state of each pool, in the policy's order; nothing if the nodes are unknown.

    ``provided`` are the DeviceClasses that provide an extended resource: their devices count under
    its name.
    """
    if nodes is None:
        return []
    states = [PoolState(pool, {}) for pool in policy.pools]
    for node in sorted(nodes, key=lambda node: _natural(node.name)):
        for state in states:
            pool, offered = state.pool, _offered(node, state.pool, policy, provided)
            is_published = any(map(pool.offers, node.published.keys() - node.remote))
            if offered or is_published or pool.contains(node):
                state.nodes[node.name] = PoolNode(
                    node.name,
                    offered,
                    # The scheduler places Pods by the devices that a DRA driver publishes.
                    has_label=is_published or pool.contains(node),
                    has_taint=not pool.fence or node.is_fenced_by(pool.taints),
                    details=details.get(node.name, NodeDetails()),
                )
    for pod in pods:
        for state in states:
            _count(pod, state, _devices(pod, state.pool, policy, nodes))
    return states


def _offered(node: Node, pool: Pool, policy: Policy, provided: frozenset[str]) -> dict[str, int]:
    return {
        name: count
        for name, count in node.offers.items()
        if count > 0
        and name not in node.remote
        and class_of_resource(name) not in provided
        and policy.counts(name)
        and pool_of_device(name, node, policy) is pool
    }


def _devices(pod: RunningPod, pool: Pool, policy: Policy, nodes: NodeIndex) -> dict[str, int]:
    """Return the pool's devices that the Pod holds; of a Pod without a node, those it waits for.

    A Pod that several pools can take waits for the devices of each.
    """
    node = nodes.get(pod.node)
    if node is not None:
        return {n: c for n, c in pod.devices.items() if pool_of_device(n, node, policy) is pool}
    devices = {}
    for name, count in pod.devices.items():
        offering = policy.pools_of_device(name)
        if pool in ([share for share in offering if share.name in pod.decision.pools] or offering):
            devices[name] = count
    return devices


def _count(pod: RunningPod, state: PoolState, devices: dict[str, int]) -> None:
    owned, pool = pod.owned, state.pool
    node = state.nodes.get(pod.node)
    if devices:
        state.requests.append((pod, sum(devices.values())))
    if node is None:
        return
    node.pods.append(pod)
    node.holdings += (
        HeldDevices(owned.namespace, owned.name, resource, count)
        for resource, count in devices.items()
    )
    pools = pod.decision.pools
    belongs = pool.name in pools if pools else bool(devices)
    if not (belongs or pod.is_agent or pod.decision.exemption):
        node.trespassers.append(pod)


def _natural(name: str) -> list[str | int]:
    """Return a key that sorts gpu-2 before gpu-10: texts and numbers alternate in it."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


class NodeFindings(NamedTuple):
    """The findings of one node; ``uid`` is empty if it is unknown."""

    name: str
    uid: str
    findings: tuple[Finding, ...]


def node_findings(states: Iterable[PoolState]) -> list[NodeFindings]:
    """Return the nodes with findings.

    gpufence does not reject Nodes, so these findings are warnings.
    """
    found: dict[tuple[str, str], list[Finding]] = {}
    for state in states:
        for node in state.nodes.values():
            if findings := list(_of_node(node, state.pool)):
                found.setdefault((node.name, node.details.uid), []).extend(findings)
    return [NodeFindings(name, uid, tuple(findings)) for (name, uid), findings in found.items()]


def _of_node(node: PoolNode, pool: Pool) -> Iterator[Finding]:
    offers = ", ".join(f"{name}: {count}" for name, count in node.offered.items())
    belongs = f"the node offers {offers}" if offers else "the node has the labels of the pool"
    if not node.has_taint:
        taints = " or ".join(map(str, pool.taints))
        yield Finding(
            WITHOUT_TAINT,
            "spec.taints",
            "a GPU node lacks the taint of its pool",
            f"{belongs}, so it belongs to pool {pool.name}, but it has no taint {taints}; every "
            "Pod can run on it",
            f"Run kubectl taint node {node.name} {_taint(pool)}",
            "warn",
        )
    if not node.has_label:
        labels = " ".join(
            f"{key}={values[0] if len(values) == 1 else 'VALUE'}"
            for key, values in pool.selector.items()
        )
        yield Finding(
            WITHOUT_LABEL,
            "metadata.labels",
            "a GPU node lacks the labels of its pool",
            f"{belongs} of pool {pool.name}, but not its labels; GPU Pods run only on nodes with "
            f"{describe_labels(pool)}",
            f"Run kubectl label node {node.name} {labels}",
            "warn",
        )


def _taint(pool: Pool) -> str:
    taint = pool.fence[0]
    return f"{taint.key}={taint.value or 'present'}:{taint.effect}"


class LabelProblem(NamedTuple):
    """Why an autoscaler adds no node for the GPU Pods of a pool, and what to do."""

    problem: str
    remediation: str


def label_problems(
    policy: Policy, nodes: NodeIndex, templates: Sequence[NodeTemplate]
) -> Iterator[LabelProblem]:
    """Yield pools whose labels nothing has, and templates for pools whose labels they lack.

    gpufence requires the labels of GPU Pods. Without them, Pods stay Pending.
    """
    known = nodes_of_pools(policy, nodes)
    for pool in policy.pools:
        if known.with_labels(pool) or known.publishing_without_labels([pool]):
            continue
        if not pool.selector:
            continue
        if not any(template.promises(pool.selector) for template in templates):
            yield LabelProblem(
                f"no node has the labels of pool {pool.name} ({describe_labels(pool)}), and no "
                "node template promises them: its GPU Pods stay Pending",
                "Correct nodeSelector, or add the labels to the node group or the template",
            )
    for template in templates:
        pools = [pool for pool in policy.pools if _is_for(template, pool)]
        if pools and all(p.selector and not template.promises(p.selector) for p in pools):
            labels = " or ".join(f"{describe_labels(pool)} (pool {pool.name})" for pool in pools)
            yield LabelProblem(
                f"{template.name} is for GPU nodes, but does not promise the labels {labels}: no "
                "node is added for GPU Pods",
                "Add the labels to the template, or select the pool by a label of the template: "
                "see gpufence policy discover",
            )


def _is_for(template: NodeTemplate, pool: Pool) -> bool:
    """Return whether the nodes of a template have the taint or the devices of a pool."""
    devices = template.allocatable or {}
    return any(count and name in pool.resources for name, count in devices.items()) or any(
        pool_taint.includes(taint) for taint in template.taints for pool_taint in pool.taints
    )


def pool_of_device(name: str, node: Node, policy: Policy) -> Pool | None:
    """Return the pool of a node's devices of this name.

    Labels tell the pools that offer the resource apart. Until the node has them, its taints do.
    """
    pools = policy.pools_of_device(name)
    for pool in pools:
        if pool.contains(node):
            return pool
    fenced = (pool for pool in pools if node.is_fenced_by(pool.taints))
    return next(fenced, pools[0] if pools else None)
