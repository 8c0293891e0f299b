"""A cluster whose collections are listed once, and the facts that follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from policies.context import MissingFact
from policies.facts import Facts
from policies.kubernetes.claims import Claim
from policies.kubernetes.objects import JSONObject, ObjectKey
from policies.kubernetes.paths import text_at
from policies.policy import Policy
from webhook.cluster.gangs import GROUPS, KINDS, QUOTAS, Gangs, Quotas, read_gangs
from webhook.cluster.limits import LIMIT_RANGES, Defaults, defaults_among
from webhook.cluster.objects import Reader
from webhook.cluster.state import NAMESPACES, RUNTIME_CLASSES, ClusterState
from webhook.devices.claims import read_claim
from webhook.devices.nodes import NODES, NodeObject
from webhook.devices.slices import RESOURCE_SLICES, TAINT_RULES
from webhook.kube.collection import Collection, LabeledMetadata


class ClaimObject(msgspec.Struct, frozen=True):
    """A ResourceClaim, or its template. API servers store only those of the form that they know."""

    metadata: LabeledMetadata
    spec: JSONObject = {}
    status: JSONObject = {}


_CLAIMS, _CLAIM_TEMPLATES = (
    Collection(name, f"/apis/resource.k8s.io/v1/{name}", ClaimObject, optional=True)
    for name in ("resourceclaims", "resourceclaimtemplates")
)

_WITHOUT = {
    NODES.name: "the report does not show pools and their nodes",
    NAMESPACES.name: "rules that depend on their labels are not evaluated",
    RUNTIME_CLASSES.name: "each RuntimeClass is assumed to exist",
    RESOURCE_SLICES.name: "the devices of DRA drivers are not counted",
    TAINT_RULES.name: "tainted devices count as free",
}
_WITHOUT_CLAIMS = "Pods with claims may not count as GPU Pods"
"""The consequence of a collection that is not listed."""


async def list_state(reader: Reader) -> ClusterState:
    """Return the nodes of a cluster with all that they offer, its namespaces, and what can join.

    Raises:
        ClusterError: the nodes, or the namespaces of a live cluster, cannot be read.
    """
    state = ClusterState(None)
    await reader.need(NODES, state.nodes.put)
    for collection, store in {**state.offers.of_drivers, **state.template_stores}.items():
        await reader.read(collection, store.put)
    if reader.objects.is_whole:
        await reader.need(NAMESPACES, state.namespaces.put)
    else:
        await reader.read(NAMESPACES, state.namespaces.put)
    return state


class ListedCluster:
    """The state of a cluster, and its claims, after ``read``.

    ``known`` has the names of the collections that are listed completely.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.state = ClusterState(policy)
        self.claims: dict[ObjectKey, Claim] = {}
        self.claim_templates: dict[ObjectKey, Claim] = {}
        self.gangs: Gangs = {}
        self.quotas: Quotas = {}
        self.defaults: Defaults = {}
        self.known: set[str] = set()

    async def read(
        self, reader: Reader, take_node: Callable[[NodeObject], None] = lambda _node: None
    ) -> None:
        """List what decisions depend on; ``take_node`` is called with each node as well.

        Raises:
            ClusterError: the cluster cannot be read. A missing permission is not an error.
        """
        state = self.state
        state.kubernetes = await reader.objects.minor_version()

        def node(item: NodeObject) -> None:
            state.nodes.put(item)
            take_node(item)

        def claim(item: ClaimObject) -> None:
            key = item.metadata.namespace, item.metadata.name
            self.claims[key] = read_claim(item.spec, item.status)

        def template(item: ClaimObject) -> None:
            key = item.metadata.namespace, item.metadata.name
            self.claim_templates[key] = read_claim(item.spec.get("spec"))

        takes: dict[Collection[Any], Callable[[Any], None]] = {
            NODES: node,
            NAMESPACES: state.namespaces.put,
            RUNTIME_CLASSES: state.runtime_classes.put,
            **{each: store.put for each, store in state.offers.of_drivers.items()},
        }
        if self._policy.reads_claims:
            takes |= {_CLAIMS: claim, _CLAIM_TEMPLATES: template}
        for collection, take in takes.items():
            without = _WITHOUT.get(collection.name, _WITHOUT_CLAIMS)
            if await reader.read(collection, take, without) is not None:
                self.known.add(collection.name)
        for collection, store in state.template_stores.items():
            await reader.read(collection, store.put)
        await self._read_gangs(reader, QUOTAS, "v1", "ResourceQuota")
        ranges = await reader.read(LIMIT_RANGES, lambda item: {**item, "kind": "LimitRange"})
        self.defaults = defaults_among(
            (text_at(item, "metadata", "namespace"), item) for item in ranges or ()
        )
        for kind in [each for group in GROUPS for each in await reader.objects.kinds(group)]:
            if kind.kind in KINDS:
                listed = Collection(kind.resource, kind.path, JSONObject)
                await self._read_gangs(reader, listed, kind.api_version, kind.kind)
        reader.skipped += state.offers.problems

    async def _read_gangs(
        self, reader: Reader, collection: Collection[JSONObject], version: str, kind: str
    ) -> None:
        def take(item: JSONObject) -> None:
            # Items of a list have no kind.
            obj = {**item, "apiVersion": version, "kind": kind}
            gangs, quotas = read_gangs([(text_at(item, "metadata", "namespace"), obj)])
            self.gangs |= gangs
            for namespace, quota in quotas.items():
                own = self.quotas.setdefault(namespace, {})
                own |= {name: min(most, own.get(name, most)) for name, most in quota.items()}

        await reader.read(collection, take)

    @property
    def unknown(self) -> frozenset[str]:
        """The facts that are not listed: a decision that lacks one is not certain."""
        claims = not self._policy.reads_claims or self.known >= {
            _CLAIMS.name,
            _CLAIM_TEMPLATES.name,
        }
        missing: dict[MissingFact, bool] = {
            "nodes": NODES.name in self.known,
            "namespaces": NAMESPACES.name in self.known,
            "resourceclaims": claims,
        }
        return frozenset(fact for fact, is_known in missing.items() if not is_known)

    def facts(self) -> Facts:
        """Return the facts of the whole cluster; those of a namespace also have its labels."""
        return replace(
            self.state.facts(self.known),
            claims=self.claims,
            claim_templates=self.claim_templates,
            gangs=self.gangs,
            quotas=self.quotas,
            defaults=self.defaults,
        )

    def labels_of(self, namespace: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace; ``None`` if they are unknown."""
        return self.state.namespaces.by_name.get(namespace)
