"""The facts of a live cluster, for the request path: what is known now, without waiting for more.

Only the claims that a Pod names are waited for, and not for long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn, Protocol

from policies.compiled import Policy
from policies.facts import Claim, Facts, JSONObject, ObjectKey
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
    LookupResult,
    LookupTiming,
    claims_named,
)
from webhook.cluster.collection import Collection, ItemT, Store
from webhook.cluster.connection import Connection
from webhook.cluster.nodes import NODES, NodeStore
from webhook.cluster.reflector import DEFAULT_TIMING, Reflector, Timing

# How long after its start a server waits for the cluster before it serves without what is missing.
_PATIENCE_SECONDS = 15.0


class Observer(Protocol):
    """Is told what happens, to count it."""

    def watch_restarted(self, resource: str) -> None:
        """A list or watch has failed, and is begun anew."""

    def claim_looked_up(self, result: LookupResult) -> None:
        """A claim that an object names was looked up."""


class _Nobody:
    def watch_restarted(self, resource: str) -> None:
        pass

    def claim_looked_up(self, result: LookupResult) -> None:
        pass


class ClusterFacts:
    """What a policy's rules need to know of one cluster.

    What nobody needs is not watched: the labels of namespaces where no pool is for namespaces with
    labels, RuntimeClasses where no pool names one, DeviceClasses and claims where no pool has
    device classes. ``clock`` returns seconds that never go back.
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
        self._observer = observer or _Nobody()
        self._clock = clock
        self._timing = timing
        self._started_at = clock()
        self._running = False
        self._tasks: dict[str, asyncio.Task[NoReturn]] = {}
        self._reflectors: dict[str, Reflector[Any]] = {}
        self._nodes = NodeStore(policy)
        self._namespaces = NamespaceStore()
        self._runtime_classes = RuntimeClassStore()
        self._device_classes = DeviceClassStore()
        self._claims = ClaimLookup(
            connection, clock=clock, looked_up=self._observer.claim_looked_up, timing=lookup_timing
        )
        self._resolves_claims = False
        self.use(policy)

    def use(self, policy: Policy) -> None:
        """Follow what this policy needs, from now on."""
        pools = policy.pools
        self._resolves_claims = bool(policy.pool_of_class)
        self._need(NODES, self._nodes, True)
        self._need(NAMESPACES, self._namespaces, any(p.tenants and p.tenants.labels for p in pools))
        self._need(RUNTIME_CLASSES, self._runtime_classes, any(p.runtime_class for p in pools))
        self._need(DEVICE_CLASSES, self._device_classes, self._resolves_claims)
        if self._nodes.use(policy):
            # Which resources are devices has changed, and of nodes only devices are kept.
            self._reflectors[NODES.name].begin_anew()
            self._restart(NODES.name)

    async def start(self) -> None:
        """Begin to follow the cluster.

        Raises:
            ConfigurationError: there is no way to it. That it cannot be reached is no error: it is
                tried for as long as this runs.
        """
        await self._connection.prepare()
        self._started_at = self._clock()
        self._running = True
        for name in self._reflectors:
            self._restart(name)

    async def stop(self) -> None:
        """End everything that was begun."""
        self._running = False
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        await self._claims.close()
        await self._connection.close()

    async def load(self) -> None:
        """Learn the cluster's state once, instead of following it.

        Raises:
            ClusterError: it cannot be asked, or refuses.
        """
        for reflector in self._reflectors.values():
            await reflector.load()

    def unready(self) -> str:
        """Return what has not been learned yet, or nothing once all is known or given up."""
        if self._clock() - self._started_at > _PATIENCE_SECONDS:
            return ""
        missing = [name for name, reflector in self._reflectors.items() if not reflector.synced]
        return f"waiting for the cluster's {', '.join(missing)}" if missing else ""

    def staleness(self) -> dict[str, float | None]:
        """Return the seconds since each collection was last heard of, ``None`` for never."""
        return {name: each.staleness() for name, each in self._reflectors.items()}

    def objects(self) -> dict[str, int]:
        """Return the number of objects that are known of each collection."""
        return {name: len(each.store) for name, each in self._reflectors.items()}

    def claim_problem(self) -> str:
        """Return why the last lookup of a claim failed, or nothing if it did not."""
        return self._claims.problem

    async def facts_for(self, facts: Facts, obj: JSONObject, seconds: float) -> Facts:
        """Return the facts of a request with those of the cluster beside them.

        ``obj`` is the request's object, of any shape yet, and ``seconds`` what is left to answer.
        Nothing is awaited unless the object, or the one before it, names claims.
        """
        facts = replace(
            facts,
            nodes=self._nodes.index if self._has(NODES) else None,
            namespace_labels=self._namespaces.labels(facts.namespace),
            runtime_classes=self._runtime_classes.known if self._has(RUNTIME_CLASSES) else None,
            extended_resource_classes=self._device_classes.by_extended_resource,
        )
        if not self._resolves_claims:
            return facts
        wanted = [name for each in (obj, facts.old) for name in claims_named(each, facts.namespace)]
        if not wanted:
            return facts
        resolved = await self._claims.resolve(wanted, seconds / 2)
        claims: dict[ObjectKey, Claim] = {}
        claim_templates: dict[ObjectKey, Claim] = {}
        for name, claim in resolved.items():
            of_kind = claims if name.kind == "resourceclaims" else claim_templates
            of_kind[name.namespace, name.name] = claim
        return replace(facts, claims=claims, claim_templates=claim_templates)

    def _need(self, collection: Collection[ItemT], store: Store[ItemT], needed: bool) -> None:
        """Follow a collection, or no longer."""
        name = collection.name
        if needed and name not in self._reflectors:
            self._reflectors[name] = Reflector(
                self._connection,
                collection,
                store,
                clock=self._clock,
                restarted=self._observer.watch_restarted,
                timing=self._timing,
            )
            self._restart(name)
        elif not needed and name in self._reflectors:
            del self._reflectors[name]
            if task := self._tasks.pop(name, None):
                task.cancel()
            for item in list(store.names()):
                store.remove(item)

    def _restart(self, name: str) -> None:
        if task := self._tasks.pop(name, None):
            task.cancel()
        if self._running:
            running = self._reflectors[name].run()
            self._tasks[name] = asyncio.create_task(running, name=f"watch of {name}")

    def _has(self, collection: Collection[Any]) -> bool:
        reflector = self._reflectors.get(collection.name)
        return reflector is not None and reflector.synced
