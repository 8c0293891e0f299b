"""The fields of Nodes that placement depends on.

A Node has about 20 KB and is updated often (conditions, images, heartbeats); most updates change
none of these fields and are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from policies.kubernetes.nodes import Node, NodeIndex
from policies.kubernetes.quantity import NANOS, is_rdma_resource_name, parse_quantity
from policies.kubernetes.resource_slices import PublishedDevices
from policies.kubernetes.scheduling import Taint
from policies.policy import Policy
from webhook.kube.collection import Collection, LabeledMetadata

# Enough for the label keys and common values of large clusters; further ones are stored twice.
_MAX_SHARED = 100_000


class TaintObject(msgspec.Struct, frozen=True):
    """``k8s.io/api/core/v1`` ``Taint``."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(msgspec.Struct, frozen=True):
    taints: list[TaintObject] | None = None
    unschedulable: bool | None = None


class NodeStatus(msgspec.Struct, frozen=True):
    allocatable: dict[str, Any] | None = None


class NodeObject(msgspec.Struct, frozen=True):
    metadata: LabeledMetadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


NODES = Collection("nodes", "/api/v1/nodes", NodeObject)


def devices_of(status: NodeStatus, policy: Policy | None) -> dict[str, int]:
    """Return the devices of pools, and for RDMA, that a Node offers: resource name to number.

    Without a policy, every extended resource counts.
    """
    return {
        name: parse_quantity(quantity) // NANOS
        for name, quantity in (status.allocatable or {}).items()
        if "/" in name
        and (policy is None or policy.pools_of_resource(name) or is_rdma_resource_name(name))
    }


def room_of(status: NodeStatus) -> tuple[int, int]:
    """Return the CPU and the memory that a Node offers, in nanos."""
    offered = status.allocatable or {}
    return parse_quantity(offered.get("cpu")), parse_quantity(offered.get("memory"))


class NodeStore:
    """Keeps a NodeIndex, in place."""

    def __init__(self, policy: Policy | None) -> None:
        self.index = NodeIndex()
        self._policy = policy
        self._published = PublishedDevices()
        self._shared: dict[str, str] = {}
        self._offers: dict[frozenset[tuple[str, int]], dict[str, int]] = {}

    def use(self, policy: Policy) -> bool:
        """Keep the devices of this policy's pools; return whether their resources changed."""
        before, self._policy = self._policy, policy
        return before is None or {pool.resources for pool in before.pools} != {
            pool.resources for pool in policy.pools
        }

    def follow(self, published: PublishedDevices) -> None:
        """Give the nodes the devices that DRA drivers publish for them."""
        self._published = published

    def publish(self, names: Iterable[str]) -> None:
        """Update the published devices of nodes; an empty name stands for all nodes."""
        wanted = {*names}
        known = map(self.index.get, self.names() if "" in wanted else wanted)
        for node in [node for node in known if node is not None]:
            self.index.update(self._with_published(node))

    def put(self, item: NodeObject, /) -> None:
        node = node_from(item, self._policy)
        if len(self._published):
            node = self._with_published(node)
        # Kubelets report every few minutes, mostly without a change.
        if node != self.index.get(node.name):
            self.index.update(replace(node, labels=self._share(node.labels)))

    def remove(self, name: str, /) -> None:
        self.index.remove(name)

    def names(self) -> Iterable[str]:
        return [node.name for node in self.index]

    def __len__(self) -> int:
        return len(self.index)

    def _with_published(self, node: Node) -> Node:
        """Return the node with what is published for it, in a mapping that equal nodes share."""
        provided = self._published.provided_by(node.name)
        offers = dict.fromkeys(provided, 0) | self._published.offers_of(node.name, node.labels)
        plugged = {name for name, count in (node.allocatable or {}).items() if count}
        return replace(
            node,
            published=self._offers.setdefault(frozenset(offers.items()), offers),
            remote=frozenset(offers.keys() - provided - plugged),
        )

    def _share(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the labels with strings that are shared between nodes.

        Most of their keys and values are the same on thousands of nodes.
        """
        shared = self._shared
        if len(shared) > _MAX_SHARED:
            shared.clear()
        return {
            shared.setdefault(key, key): shared.setdefault(value, value)
            for key, value in labels.items()
        }


def node_from(item: NodeObject, policy: Policy | None) -> Node:
    return Node(
        item.metadata.name,
        item.metadata.labels or {},
        taints_of(item.spec.taints),
        None if item.status.allocatable is None else devices_of(item.status, policy),
    )


def taints_of(taints: Iterable[TaintObject] | None) -> tuple[Taint, ...]:
    return tuple(Taint(taint.key, taint.effect, taint.value) for taint in taints or ())
