"""The facts of a live cluster, for the request path: what is known now, without waiting for more.

Only the claims that a Pod names are waited for, and not for long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from policies.facts import Facts, Request
from policies.kubernetes.claims import Claim
from policies.kubernetes.decoding import MalformedObjectError
from policies.kubernetes.objects import ObjectKey
from policies.kubernetes.workload import Workload
from policies.policy import Policy
from webhook.cluster.catalogues import (
    DEVICE_CLASSES,
    NAMESPACES,
    RUNTIME_CLASSES,
    DeviceClassStore,
    NamespaceStore,
    RuntimeClassStore,
)
from webhook.cluster.claims import (
    DEFAULT_LOOKUP_TIMING,
    ClaimLookup,
    ClaimName,
    LookupResult,
    LookupTiming,
    claims_named,
)
from webhook.cluster.nodes import NODES, NodeStore
from webhook.cluster.watches import Watches
from webhook.kube.connection import Connection
from webhook.kube.reflector import DEFAULT_TIMING, Timing

# How long after its start a server waits for the cluster before it serves without what is missing.
_PATIENCE_SECONDS = 15.0


class Observer(Protocol):
    """Counts events."""

    def watch_restarted(self, resource: str) -> None:
        """A list or watch has failed, and starts again."""

    def claim_looked_up(self, result: LookupResult) -> None:
        """A claim that an object names was looked up."""


class _Nobody:
    def watch_restarted(self, resource: str) -> None:
        pass

    def claim_looked_up(self, result: LookupResult) -> None:
        pass


class ClusterFacts:
    """What a policy's rules need to know of one cluster.

    What no pool needs is not watched: namespaces unless a pool selects namespaces by labels,
    RuntimeClasses unless a pool names one, DeviceClasses and claims unless a pool has device
    classes. ``clock`` returns seconds that never go back.
    """

    def __init__(
        self,
        connection: Connection,
        policy: Policy,
        *,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
        timing: Timing = DEFAULT_TIMING,
        lookup_timing: LookupTiming = DEFAULT_LOOKUP_TIMING,
    ) -> None:
        self._connection = connection
        observer = observer or _Nobody()
        self._clock = clock
        self._started_at = clock()
        self._watches = Watches(
            connection, restarted=observer.watch_restarted, clock=clock, timing=timing
        )
        self._nodes = NodeStore(policy)
        self._namespaces = NamespaceStore()
        self._runtime_classes = RuntimeClassStore()
        self._device_classes = DeviceClassStore()
        self._claims = ClaimLookup(
            connection, clock=clock, looked_up=observer.claim_looked_up, timing=lookup_timing
        )
        self._resolves_claims = False
        self.use(policy)

    def use(self, policy: Policy) -> None:
        """Follow what this policy needs, from now on."""
        pools = policy.pools
        self._resolves_claims = bool(policy.pool_of_class)
        need = self._watches.need
        allowed = [pool.allowed_namespaces for pool in pools if pool.allowed_namespaces]
        need(NODES, self._nodes)
        need(NAMESPACES, self._namespaces, any(each.match_labels for each in allowed))
        need(RUNTIME_CLASSES, self._runtime_classes, any(p.runtime_class for p in pools))
        need(DEVICE_CLASSES, self._device_classes, self._resolves_claims)
        if self._nodes.use(policy):
            # Which resources are devices has changed, and of nodes only devices are kept.
            self._watches.begin_anew(NODES)

    async def start(self) -> None:
        """Begin to follow the cluster.

        Raises:
            ConfigurationError: there is no way to it. That it cannot be reached is no error: it is
                tried for as long as this runs.
        """
        await self._connection.prepare()
        self._started_at = self._clock()
        self._watches.start()

    async def stop(self) -> None:
        """End everything that was begun."""
        await self._watches.stop()
        await self._claims.close()
        await self._connection.close()

    async def load(self) -> None:
        """Learn the cluster's state once, instead of following it.

        Raises:
            ClusterError: a request failed.
        """
        await self._watches.load()

    def unready(self) -> str:
        """Return what has not been learned yet, or nothing once all is known or given up."""
        if self._clock() - self._started_at > _PATIENCE_SECONDS:
            return ""
        missing = self._watches.missing()
        return f"waiting for the cluster's {', '.join(missing)}" if missing else ""

    def staleness(self) -> dict[str, float | None]:
        """Return the seconds since each collection was last heard of, ``None`` for never."""
        return self._watches.staleness()

    def objects(self) -> dict[str, int]:
        """Return the number of objects that are known of each collection."""
        return self._watches.objects()

    def claim_problem(self) -> str:
        """Return why the last lookup of a claim failed, or nothing if it did not."""
        return self._claims.problem

    async def facts_for(self, request: Request, obj: Workload, seconds: float) -> Facts:
        """Return the cluster facts for a request and its object.

        ``seconds`` is the time left to respond. Nothing is awaited unless the object, or the one
        before it, names claims.
        """
        facts = Facts(
            nodes=self._nodes.index if self._watches.has(NODES) else None,
            namespace_labels=self._namespaces.labels(request.namespace),
            runtime_classes=self._runtime_classes.known
            if self._watches.has(RUNTIME_CLASSES)
            else None,
            extended_resource_classes=self._device_classes.by_extended_resource,
        )
        if not self._resolves_claims:
            return facts
        wanted = [*claims_named(obj, request.namespace), *_claims_of_old(request)]
        if not wanted:
            return facts
        resolved = await self._claims.resolve(wanted, seconds / 2)
        claims: dict[ObjectKey, Claim] = {}
        claim_templates: dict[ObjectKey, Claim] = {}
        for name, claim in resolved.items():
            of_kind = claims if name.kind == "resourceclaims" else claim_templates
            of_kind[name.namespace, name.name] = claim
        return replace(facts, claims=claims, claim_templates=claim_templates)


def _claims_of_old(request: Request) -> list[ClaimName]:
    if request.old is None:
        return []
    try:
        return [*claims_named(Workload(request.old), request.namespace)]
    except MalformedObjectError:
        return []
