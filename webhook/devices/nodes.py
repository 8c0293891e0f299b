"""The fields of Nodes that placement depends on.

A Node has about 20 KB and is updated often (conditions, images, heartbeats); most updates change
none of these fields and are dropped.
"""

from __future__ import annotations

from collections.abc import Collection as Names
from collections.abc import Iterable, Mapping
from dataclasses import replace
from sys import intern
from typing import Any

import msgspec

from policies.kubernetes.nodes import Node, NodeIndex, Room
from policies.kubernetes.quantity import NANOS, is_rdma_resource_name, parse_quantity
from policies.kubernetes.scheduling import Taint
from policies.policy import Policy
from webhook.devices.published import PublishedDevices
from webhook.kube.collection import Collection, LabeledMetadata


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


class NodeStore:
    """Keeps a NodeIndex, in place: nodes with the devices of pools and for RDMA.

    Without a policy, every extended resource counts.
    """

    def __init__(self, policy: Policy | None, published: PublishedDevices) -> None:
        self.index = NodeIndex()
        self._policy = policy
        self._published = published
        self._counts: dict[frozenset[tuple[str, int]], Mapping[str, int]] = {}

    def use(self, policy: Policy) -> bool:
        """Keep the devices of this policy's pools; return whether their resources changed."""
        before, self._policy = self._policy, policy
        return before is None or {pool.resources for pool in before.pools} != {
            pool.resources for pool in policy.pools
        }

    def publish(self, names: Names[str]) -> None:
        """Update the published devices of nodes; an empty name stands for all nodes."""
        known = map(self.index.get, self.names() if "" in names else names)
        for node in [node for node in known if node is not None]:
            self.index.update(self._with_published(node))

    def put(self, item: NodeObject, /) -> None:
        node = self._with_published(self._read(item))
        # Kubelets report every few minutes, mostly without a change.
        if node != self.index.get(node.name):
            # Most keys and values are the same on thousands of nodes.
            labels = {intern(key): intern(value) for key, value in node.labels.items()}
            devices = node.allocatable and self._equal(node.allocatable)
            self.index.update(replace(node, labels=labels, allocatable=devices))

    def remove(self, name: str, /) -> None:
        self.index.remove(name)

    def names(self) -> Iterable[str]:
        return self.index.names()

    def __len__(self) -> int:
        return len(self.index)

    def _read(self, item: NodeObject) -> Node:
        policy, offered = self._policy, item.status.allocatable
        devices = {
            name: parse_quantity(quantity) // NANOS
            for name, quantity in (offered or {}).items()
            if "/" in name
            and (policy is None or policy.pools_of_resource(name) or is_rdma_resource_name(name))
        }
        return Node(
            item.metadata.name,
            item.metadata.labels or {},
            taints_of(item.spec.taints),
            None if offered is None else devices,
            room=_room(offered or {}),
        )

    def _with_published(self, node: Node) -> Node:
        """Return the node with what is published for it."""
        offers, own = self._published.offered_by(node.name, node.labels)
        if not (offers or node.published):
            return node
        plugged = {name for name, count in (node.allocatable or {}).items() if count}
        remote = offers.keys() - own - plugged
        return replace(node, published=self._equal(offers), remote=frozenset(remote))

    def _equal(self, counts: Mapping[str, int]) -> Mapping[str, int]:
        """Return an equal mapping that is kept already: most nodes have the same devices."""
        return self._counts.setdefault(frozenset(counts.items()), counts)


def _room(offered: Mapping[str, Any]) -> Room:
    cpu, memory = parse_quantity(offered.get("cpu")), parse_quantity(offered.get("memory"))
    gibibyte = 2**30 * NANOS
    return Room(-(-cpu // NANOS) * NANOS, -(-memory // gibibyte) * gibibyte)


def taints_of(taints: Iterable[TaintObject] | None) -> tuple[Taint, ...]:
    return tuple(Taint(taint.key, taint.effect, taint.value) for taint in taints or ())
