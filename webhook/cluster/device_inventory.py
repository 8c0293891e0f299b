"""The inventory of GPU devices: what nodes offer, and what Pods and claims hold or wait for.

It feeds metrics only. No rule depends on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from policies.policy import Policy
from webhook.cluster.facts import ClusterFacts
from webhook.cluster.holders import (
    CLAIMS,
    PODS,
    ClaimObject,
    Holding,
    PodObject,
    of_claim,
    of_pod,
)
from webhook.cluster.nodes import NODES, NodeStore, Offer
from webhook.cluster.stores import Tally
from webhook.cluster.watches import Watches
from webhook.kube.connection import Connection
from webhook.kube.reflector import DEFAULT_TIMING, Timing

KEEP_SECONDS = 60.0
"""A replica that no longer leads keeps its inventory for this time: it may lead again."""


class DeviceInventory:
    """Counts the devices of the policy's pools. ``restarted`` is called when a watch fails.

    It reads what nodes offer from the ``facts``, and watches the nodes itself only without them.

    It does not count the devices of a resource that only a DeviceClass ties to a pool, or requests
    of claims that name no number (``webhook.cluster.holders.of_claim``).
    """

    def __init__(
        self,
        connection: Connection,
        policy: Policy,
        facts: ClusterFacts | None = None,
        *,
        restarted: Callable[[str], None] = lambda _name: None,
        clock: Callable[[], float] = time.monotonic,
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        self.policy = policy
        self._connection = connection
        self._facts = facts
        self._clock = clock
        self._running = False
        self._exported = False
        self._exported_at = 0.0
        self._watches = Watches(connection, restarted=restarted, clock=clock, timing=timing)
        self._pods = Tally[PodObject, Holding](lambda pod: of_pod(pod, self.policy))
        self._claims = Tally[ClaimObject, Holding](lambda claim: of_claim(claim, self.policy))
        self._nodes = NodeStore(policy)

    def use(self, policy: Policy) -> None:
        """Count the devices of this policy's pools.

        The old counts remain until the new ones are complete.
        """
        before, self.policy = self.policy, policy
        self._nodes.use(policy)
        if self._running and _devices(before) != _devices(policy):
            for collection in (PODS, CLAIMS) if self._facts else (PODS, CLAIMS, NODES):
                self._watches.relist(collection)

    async def follow(self, exported: bool) -> None:
        """Count while the counts are ``exported``, and for ``KEEP_SECONDS`` after that.

        Raises:
            ConfigurationError: the cluster's configuration cannot be read.
        """
        now = self._clock()
        if exported:
            self._exported_at = now
            await self._start()
        elif now - self._exported_at > KEEP_SECONDS:
            await self.stop()
        self._exported = exported

    async def stop(self) -> None:
        """Stop counting, and forget the counts."""
        if not self._running:
            return
        self._running = self._exported = False
        await self._watches.stop()
        await self._connection.close()
        self._need(False)

    async def _start(self) -> None:
        if self._running:
            return
        await self._connection.prepare()
        self._running = True
        self._watches.start()
        self._need(True)

    def holdings(self) -> Iterator[tuple[Holding, int]]:
        """Yield the devices that are held or pending; none until all collections are listed."""
        if self._exported and self._watches.has(PODS) and self._watches.has(CLAIMS):
            yield from self._pods.sums.items()
            yield from self._claims.sums.items()

    def allocatable(self) -> Mapping[Offer, int]:
        """Return the devices of all nodes; none until the nodes are listed."""
        if not self._exported:
            return {}
        if self._facts is not None:
            return self._facts.offers()
        return self._nodes.offers if self._watches.has(NODES) else {}

    def staleness(self) -> dict[str, float | None]:
        """Return the seconds since the last event of each collection, ``None`` for never."""
        return self._watches.staleness()

    def objects(self) -> dict[str, int]:
        """Return the number of objects with devices of a pool in each collection."""
        return self._watches.objects()

    def _need(self, needed: bool) -> None:
        self._watches.need(PODS, self._pods, needed)
        self._watches.need(CLAIMS, self._claims, needed)
        self._watches.need(NODES, self._nodes, needed and self._facts is None)


def _devices(policy: Policy) -> set[object]:
    """Return the parts of a policy that select the counted devices."""
    return {
        (
            pool.name,
            pool.resources,
            pool.fractional_resources,
            pool.device_classes,
            pool.taints,
            frozenset(pool.node_selector.items()),
        )
        for pool in policy.pools
    }
