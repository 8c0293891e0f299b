"""What is known of a cluster, and the facts that follow from it.

A replica keeps the state up to date with watches, an audit lists each collection once, and commands
read objects from files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Collection as Names
from typing import Generic, TypeVar

import msgspec

from policies.facts import Facts
from policies.kubernetes.node_templates import NodeTemplate
from policies.policy import Policy
from webhook.cluster.templates import (
    MACHINE_DEPLOYMENTS,
    NODE_CLAIMS,
    NODE_POOLS,
    of_machine_deployment,
    of_node_claim,
    of_node_pool,
)
from webhook.kube.collection import Collection, ItemT_contra, LabeledMetadata
from webhook.kube.nodes import NODES
from webhook.kube.published import NodeOffers

T = TypeVar("T")
AllT = TypeVar("AllT")
ValueT = TypeVar("ValueT")


class NamedObject(msgspec.Struct, frozen=True):
    metadata: LabeledMetadata


NAMESPACES = Collection("namespaces", "/api/v1/namespaces", NamedObject)
RUNTIME_CLASSES = Collection("runtimeclasses", "/apis/node.k8s.io/v1/runtimeclasses", NamedObject)


class ValueStore(Generic[ItemT_contra, ValueT, AllT]):
    """Keeps the value that ``read`` returns of each item; items without a value are dropped.

    ``all`` is what ``combine`` makes of the values by name. It is made again after each change.
    """

    def __init__(
        self,
        read: Callable[[ItemT_contra], ValueT | None],
        combine: Callable[[Mapping[str, ValueT]], AllT],
    ) -> None:
        self._read = read
        self._combine = combine
        self._values: dict[str, ValueT] = {}
        self.all: AllT = combine(self._values)

    def put(self, item: ItemT_contra, /) -> None:
        key, value = item.metadata.key, self._read(item)
        if value is None:
            self.remove(key)
        elif self._values.get(key) != value:
            self._values[key] = value
            self.all = self._combine(self._values)

    def remove(self, name: str, /) -> None:
        if self._values.pop(name, None) is not None:
            self.all = self._combine(self._values)

    def names(self) -> Iterable[str]:
        return self._values.keys()

    def __len__(self) -> int:
        return len(self._values)


class ClusterState:
    """The stores of a cluster's collections: what placement depends on.

    Without a policy, every extended resource of a node counts as a device. ``outdated`` is called
    when the ResourceSlices must be read again.
    """

    def __init__(self, policy: Policy | None, outdated: Callable[[], None] = lambda: None) -> None:
        self.kubernetes: int | None = None
        """The minor version of Kubernetes; ``None`` if it is unknown."""
        self.offers = NodeOffers(policy, outdated)
        self.nodes = self.offers.nodes
        self.slices = self.offers.slices
        self.device_classes = self.offers.device_classes
        self.namespaces = ValueStore(_labels, _itself)
        self.runtime_classes = ValueStore(_labels, frozenset[str])
        self.template_stores = {
            NODE_POOLS: ValueStore(of_node_pool, _values),
            NODE_CLAIMS: ValueStore(of_node_claim, _values),
            MACHINE_DEPLOYMENTS: ValueStore(of_machine_deployment, _values),
        }
        """The stores of the collections of node templates. No cluster needs to have them."""

    @property
    def templates(self) -> tuple[NodeTemplate, ...]:
        """The nodes that autoscalers can add."""
        return tuple(template for store in self.template_stores.values() for template in store.all)

    def facts(self, known: Names[str]) -> Facts:
        """Return the facts of the whole cluster, by the names of the ``known`` collections.

        A collection is known once it was listed completely.
        """
        return Facts(
            kubernetes=self.kubernetes,
            nodes=self.nodes.index if NODES.name in known else None,
            templates=self.templates,
            runtime_classes=self.runtime_classes.all if RUNTIME_CLASSES.name in known else None,
            extended_resource_classes=self.device_classes.by_resource,
        )


def _labels(item: NamedObject) -> Mapping[str, str]:
    return item.metadata.labels or {}


def _itself(value: T) -> T:
    return value


def _values(by_name: Mapping[str, NodeTemplate]) -> tuple[NodeTemplate, ...]:
    return tuple(by_name.values())
