"""What is known of a cluster, and the facts that follow from it.

A replica keeps the state up to date with watches, an audit lists each collection once, and commands
read objects from files.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from collections.abc import Collection as Names

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
from webhook.devices.nodes import NODES
from webhook.devices.offers import Offers
from webhook.kube.collection import Collection, LabeledMetadata, ValueStore


class NamedObject(msgspec.Struct, frozen=True):
    metadata: LabeledMetadata


class RuntimeClass(NamedObject, frozen=True):
    handler: str = ""


NAMESPACES = Collection("namespaces", "/api/v1/namespaces", NamedObject)
RUNTIME_CLASSES = Collection("runtimeclasses", "/apis/node.k8s.io/v1/runtimeclasses", RuntimeClass)


class ClusterState:
    """The stores of a cluster's collections: what placement depends on.

    Without a policy, every extended resource of a node counts as a device. ``outdated`` is called
    when the ResourceSlices must be read again.
    """

    def __init__(self, policy: Policy | None, outdated: Callable[[], None] = lambda: None) -> None:
        self.kubernetes: int | None = None
        """The minor version of Kubernetes; ``None`` if it is unknown."""
        self.offers = Offers(policy, outdated)
        self.nodes = self.offers.nodes
        self.namespaces = ValueStore[NamedObject, Mapping[str, str]](
            lambda item: item.metadata.labels or {}
        )
        self.runtime_classes = ValueStore[RuntimeClass, str](lambda item: item.handler)
        self.template_stores = {
            NODE_POOLS: ValueStore(of_node_pool, self._count_template),
            NODE_CLAIMS: ValueStore(of_node_claim, self._count_template),
            MACHINE_DEPLOYMENTS: ValueStore(of_machine_deployment, self._count_template),
        }
        """The stores of the collections of node templates. No cluster needs to have them."""
        self._alike: dict[Hashable, tuple[NodeTemplate, int]] = {}
        """By what they promise, one template and the number of equal ones."""
        self._distinct: tuple[NodeTemplate, ...] | None = None
        """One of the templates that promise the same: of 30,000 NodeClaims, some dozens."""

    @property
    def templates(self) -> tuple[NodeTemplate, ...]:
        """The nodes that autoscalers can add."""
        stores = self.template_stores.values()
        return tuple(each for store in stores for each in store.by_name.values())

    def facts(self, known: Names[str]) -> Facts:
        """Return the facts of the whole cluster, by the names of the ``known`` collections.

        A collection is known once it was listed completely.
        """
        if self._distinct is None:
            self._distinct = tuple(template for template, _ in self._alike.values())
        return Facts(
            kubernetes=self.kubernetes,
            nodes=self.nodes.index if NODES.name in known else None,
            templates=self._distinct,
            runtime_classes=self.runtime_classes.by_name if RUNTIME_CLASSES.name in known else {},
            extended_resource_classes=self.offers.by_resource,
            host_shares=self.offers.published.host_shares,
        )

    def _count_template(self, before: NodeTemplate | None, after: NodeTemplate | None) -> None:
        for template, change in ((after, 1), (before, -1)):
            if template is None:
                continue
            key = template.promised
            first, count = self._alike.get(key, (template, 0))
            if count == 0 or count + change == 0:
                self._distinct = None
            self._alike[key] = first, count + change
            if count + change == 0:
                del self._alike[key]
