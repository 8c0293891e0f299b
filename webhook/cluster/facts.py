"""The facts of a live cluster for the request path.

Decisions use what is known now, and wait, briefly, only for the claims that a Pod names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from policies.context import Fact
from policies.facts import Facts, Request
from policies.kubernetes.claims import Claim
from policies.kubernetes.objects import MalformedObjectError, ObjectKey
from policies.kubernetes.quantity import is_subdomain
from policies.kubernetes.workload import Workload
from policies.policy import Policy
from policies.pool_nodes import nodes_of_pools
from webhook.cluster.claims import LOOKUP_SECONDS, ClaimLookup, LookupResult, claims_named
from webhook.cluster.needs import needed_facts
from webhook.cluster.state import (
    NAMESPACES,
    RUNTIME_CLASSES,
    ClusterState,
    NamedObject,
)
from webhook.devices.nodes import NODES
from webhook.devices.slices import RESOURCE_SLICES
from webhook.kube.errors import ClusterError
from webhook.kube.reflector import Watches

# The longest wait of a review for a namespace.
_NAMESPACE_SECONDS = 1.0

_decode_namespace = msgspec.json.Decoder(NamedObject).decode

# After this time a starting server serves without the facts that are missing.
_PATIENCE_SECONDS = 15.0


class ClusterFacts:
    """The cluster facts that the rules of a policy need.

    What no pool needs is not watched: namespaces unless a pool selects namespaces by labels,
    RuntimeClasses unless a pool names one. Claims are looked up if a pool has device classes.
    ``looked_up`` is called with the result of each lookup of a claim. A review waits for
    one for ``lookup_seconds`` at most.
    """

    def __init__(
        self,
        watches: Watches,
        policy: Policy,
        *,
        looked_up: Callable[[LookupResult], None] = lambda _result: None,
        lookup_seconds: float = LOOKUP_SECONDS,
    ) -> None:
        self.watches = watches
        self._connection = watches.connection
        self._started_at = watches.clock()
        self.state = ClusterState(policy, lambda: watches.relist(RESOURCE_SLICES))
        self.claims = ClaimLookup(watches.connection, looked_up=looked_up, wait=lookup_seconds)
        self._policy = policy
        self._needed: dict[Fact, str] = {}
        self._resolves_claims = False
        self.use(policy)

    def use(self, policy: Policy) -> None:
        """Watch what this policy needs from now on."""
        if not self._policy.pools:
            self._started_at = self.watches.clock()
        self._policy = policy
        self._needed = needed_facts(policy)
        self._resolves_claims = policy.reads_claims
        if not policy.pools:
            # There is no policy yet.
            return
        need, state = self.watches.need, self.state
        for collection, store in (*state.offers.stores.items(), *state.template_stores.items()):
            need(collection, store)
        need(NAMESPACES, state.namespaces, "namespaces" in self._needed)
        need(RUNTIME_CLASSES, state.runtime_classes, "runtimeclasses" in self._needed)
        if state.nodes.use(policy):
            # Which resources are devices has changed, and of nodes only devices are kept.
            self.watches.relist(NODES)

    async def read_version(self) -> None:
        """Read the version of Kubernetes again; raises ClusterError, and keeps the one before."""
        self.state.kubernetes = await self._connection.minor_version()

    async def start(self) -> None:
        """Start the watches.

        Raises:
            ConfigurationError: there is no way to the cluster.
        """
        await self.watches.start()
        self._started_at = self.watches.clock()

    async def stop(self) -> None:
        await self.claims.close()
        await self.watches.stop()

    def unready(self) -> str:
        """Return the facts that are not complete yet; nothing after the startup deadline."""
        if self.watches.clock() - self._started_at > _PATIENCE_SECONDS:
            return ""
        missing = self.watches.missing()
        return f"waiting for the cluster's {', '.join(missing)}" if missing else ""

    def problems(self) -> list[str]:
        """Return the missing facts that the policy needs, one line for each kind."""
        missing = self.watches.missing()
        return [
            f"the cluster's {fact} are unknown ({missing[fact] or 'the list is not complete'}): "
            f"{consequence}"
            for fact, consequence in self._needed.items()
            if fact in missing
        ] + self.state.offers.problems

    def nodes_without_labels(self) -> dict[str, int]:
        """Return by pool the nodes with its devices that have the labels of no pool and need them.

        It is empty until the nodes are listed.
        """
        if NODES.name not in self.watches.listed:
            return {}
        known = nodes_of_pools(self._policy, self.state.nodes.index)
        return {pool.name: known.lacking_labels(pool).bit_count() for pool in self._policy.pools}

    async def facts_for(self, request: Request, obj: Workload, seconds: float) -> Facts:
        """Return the cluster facts for a request and its object.

        ``seconds`` is the time left to respond. Nothing is awaited unless the object, or the one
        before it, names claims.
        """
        labels = await self._labels_of(request.namespace, seconds / 2)
        facts = replace(self.state.facts(self.watches.listed), namespace_labels=labels)
        if not self._resolves_claims:
            return facts
        names = list(claims_named(obj, request))
        if request.old is not None:
            with suppress(MalformedObjectError):
                names += claims_named(Workload(request.old), request)
        if not names:
            return facts
        resolved = await self.claims.resolve(names, seconds / 2)
        claims: dict[ObjectKey, Claim] = {}
        claim_templates: dict[ObjectKey, Claim] = {}
        for name, claim in resolved.items():
            of_kind = claims if name.kind == "resourceclaims" else claim_templates
            of_kind[name.namespace, name.name] = claim
        for name in names:
            # Of several entries with one template, a PodGroup may have one.
            key = name.namespace, name.name
            if name.group and resolved.get(name) != claim_templates.get(key):
                claim_templates.pop(key, None)
        return replace(facts, claims=claims, claim_templates=claim_templates)

    async def _labels_of(self, namespace: str, seconds: float) -> Mapping[str, str] | None:
        """Return the labels of a namespace, ``None`` if they are unknown.

        A namespace is often created just before its first Pod: one that the watch does not know yet
        is read.
        """
        labels = self.state.namespaces.by_name.get(namespace)
        listed = NAMESPACES.name in self.watches.listed
        if labels is not None or not listed or not is_subdomain(namespace):
            return labels
        path = f"{NAMESPACES.path}/{namespace}"
        try:
            body = await self._connection.get(path, seconds=min(seconds, _NAMESPACE_SECONDS))
            return _decode_namespace(body).metadata.labels or {}
        except (ClusterError, msgspec.DecodeError):
            return None
