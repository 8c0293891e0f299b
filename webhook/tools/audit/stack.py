"""The GPU stack: DaemonSets that cannot run on GPU nodes, and devices for other nodes.

Labels and devices of a node come from DaemonSets: feature discovery, a driver, a device plugin. A
DaemonSet that does not tolerate the taint of the nodes wants no Pod there, and reports no error.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

from policies.kubernetes.nodes import Node, NodeIndex, NodeSet
from policies.kubernetes.objects import JSONObject, MalformedObjectError, mapping, mappings
from policies.kubernetes.pod import Pod
from policies.kubernetes.scheduling import FENCING_EFFECTS, Taint, tolerates
from policies.kubernetes.workload import Workload
from policies.policy import Policy
from policies.pool_nodes import nodes_of_pools
from policies.vendors import domains_of_vendors, known_vendors
from webhook.cluster.state import ClusterState
from webhook.devices.published import ResourceSlice
from webhook.kube.collection import Collection
from webhook.wording import counted, some

DAEMON_SETS = Collection("daemonsets", "/apis/apps/v1/daemonsets", JSONObject)

_WORDS = {word for vendor in known_vendors() for word in vendor.images}
_DOMAINS = domains_of_vendors()
_IMAGES = re.compile(
    rf"gpu|node-feature-discovery|/nfd|device-plugin|dra-driver|{'|'.join(sorted(_WORDS))}"
)
_OWNERS = re.compile(rf"(^|\.)({'|'.join(map(re.escape, sorted(_DOMAINS)))})/|^nfd\.")
"""The API versions of what operators make the stack from: ClusterPolicy, NodeFeatureDiscovery."""
# The DaemonSet controller tolerates the taints of a node's state.
_STATE = "node.kubernetes.io/"


_CLIQUE = "nvidia.com/gpu.clique"
_COMPUTE_DOMAIN = "resource.nvidia.com/computeDomain"


class StackProblem(NamedTuple):
    """What is wrong with a part of the GPU stack, or a template of GPU nodes, and what to do."""

    problem: str
    remediation: str

    def __str__(self) -> str:
        return f"{self.problem}. {self.remediation}"


def of_a_network(is_known: Callable[[str], object], state: ClusterState) -> Iterator[StackProblem]:
    """Yield each DRA driver whose devices are accessible from nodes that have none themselves.

    ``is_known`` selects the devices by their names.
    """
    published = state.offers.published
    reached = [
        node
        for node in state.nodes.index
        if any(map(is_known, node.remote)) and not any(map(is_known, node.devices))
    ]
    by_driver: dict[str, list[ResourceSlice]] = {}
    for item in published.of_several_nodes() if reached else ():
        if any(map(is_known, published.names_of(item.devices))):
            by_driver.setdefault(item.pool.driver, []).append(item)
    for driver, slices in sorted(by_driver.items()):
        names = [n.name for n in reached if any(s.devices_on(n.name, n.labels) for s in slices)]
        if names:
            yield StackProblem(
                f"DRA driver {driver} publishes devices for {counted(len(names), 'node')} without "
                f"devices of that kind ({some(sorted(names))}), in ResourceSlice "
                f"{some(sorted(item.name for item in slices))}: gpufence fences no node for them",
                "If the devices are not attached over a network, delete the ResourceSlice, and "
                "restrict who may create ResourceSlices",
            )


def of_several_domains(nodes: NodeIndex) -> Iterator[StackProblem]:
    """Yield each clique, whose GPUs NVLink connects, with nodes of several ComputeDomains.

    Source: ``cmd/compute-domain-kubelet-plugin`` of NVIDIA's DRA driver, which labels nodes.
    """
    cliques: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for node in nodes:
        cliques[node.labels.get(_CLIQUE, "")][node.labels.get(_COMPUTE_DOMAIN, "")] += 1
    for clique, counts in sorted(cliques.items()):
        free = counts.pop("", 0)
        if clique and len(counts) > 1:
            domains = [f"{name} on {counted(n, 'node')}" for name, n in sorted(counts.items())]
            yield StackProblem(
                f"{counted(len(counts), 'ComputeDomain')} share clique {clique} "
                f"({some(domains)}): their Pods cannot use each other's memory; "
                f"free for others: {counted(free, 'node')} of the clique",
                "Use one ComputeDomain for Pods that work together, and keep different ones apart "
                f"by a required Pod affinity with the topologyKey {_CLIQUE}",
            )


def classes_of_no_pool(policy: Policy, state: ClusterState) -> Iterator[StackProblem]:
    """Yield each DeviceClass that selects devices of a pool, and that no pool has."""
    pools: dict[str, str] = {}
    for item in state.offers.slices.by_name.values():
        for device in item.devices:
            own = [p for name in device.classes for p in policy.pools_of_class.get(name, ())]
            for name in device.classes - policy.pools_of_class.keys() if own else ():
                pools.setdefault(name, own[0].name)
    for name, pool in sorted(pools.items()):
        yield StackProblem(
            f"DeviceClass {name} selects devices of pool {pool}, and no pool has the class: a Pod "
            "with a claim on it is no GPU Pod",
            f"Add {name} to deviceClasses of pool {pool}, and its extendedResourceName, if it has "
            "one, to resources",
        )


def unreached_by(
    policy: Policy, daemon_sets: Iterable[JSONObject], nodes: NodeIndex
) -> Iterator[StackProblem]:
    """Yield those that keep off nodes of a pool, now or when its other nodes get the taint."""
    known = nodes_of_pools(policy, nodes)
    groups = {f"pool {pool.name}": known.of(pool) for pool in policy.pools}
    fences = frozenset(taint.key for pool in policy.pools for taint in pool.taints)
    return unreached(daemon_sets, groups, nodes, fences)


def unreached(
    daemon_sets: Iterable[JSONObject],
    groups: Mapping[str, NodeSet],
    nodes: NodeIndex,
    fences: frozenset[str] = frozenset(),
) -> Iterator[StackProblem]:
    """Yield each DaemonSet of the GPU stack and taint that keeps it off nodes of a group.

    A taint of one node is about the state of that node, unless the group has no other, or its key
    is one of the ``fences``: the other nodes may get it.
    """
    every = reduce(or_, groups.values(), 0)
    for obj in daemon_sets:
        try:
            agents = Workload({"apiVersion": "apps/v1", "kind": "DaemonSet", **obj}).pods()
        except MalformedObjectError:
            continue
        for agent in agents:
            selected = agent.selected_nodes(nodes).all
            if _is_of_stack(obj, agent, selected, every, nodes):
                metadata = mapping(obj.get("metadata"))
                name = f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"
                for group, numbers in groups.items():
                    here = [*nodes.nodes(numbers & selected)]
                    yield from _kept_off(agent, name, group, here, fences)


def _kept_off(
    agent: Pod, name: str, group: str, nodes: Sequence[Node], fences: frozenset[str]
) -> Iterator[StackProblem]:
    keys = Counter(key for node in nodes for key in {taint.key for taint in node.taints})
    for taint in dict.fromkeys(taint for node in nodes for taint in node.taints):
        is_of_one = keys[taint.key] == 1 < len(nodes) and taint.key not in fences
        if is_of_one or not _keeps_off(taint, agent):
            continue
        tainted = [node.name for node in nodes if taint in node.taints]
        toleration = {"key": taint.key, "operator": "Exists", "effect": taint.effect}
        yield StackProblem(
            f"DaemonSet {name} does not tolerate {taint}, so it does not run on "
            f"{counted(len(tainted), 'node')} of {group} ({some(tainted)})",
            f"Add {json.dumps(toleration)} to its tolerations",
        )


def _is_of_stack(
    obj: JSONObject, agent: Pod, selected: NodeSet, gpu_nodes: NodeSet, nodes: NodeIndex
) -> bool:
    """Return whether the images, an owner, or the selection of GPU nodes alone say so."""
    owners = mappings(mapping(obj.get("metadata")).get("ownerReferences"))
    return (
        any(_IMAGES.search(each.spec.image or "") for each in agent.containers)
        or any(_OWNERS.search(str(owner.get("apiVersion"))) for _, owner in owners)
        or (0 < selected.bit_count() < len(nodes) and not selected & ~gpu_nodes)
    )


def _keeps_off(taint: Taint, agent: Pod) -> bool:
    if taint.effect not in FENCING_EFFECTS or taint.key.startswith(_STATE):
        return False
    return not any(tolerates(each, taint) for each in agent.spec.tolerations or ())
