"""The GPU estate: which devices the cluster has, and who holds or waits for them.

For people who pay for GPUs, not for the rules: nothing here is on the request path.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from policies.policy import Policy
from webhook.cluster.holders import (
    CLAIMS,
    NODES,
    PODS,
    ClaimObject,
    Holding,
    NodeObject,
    PodObject,
    of_claim,
    of_node,
    of_pod,
)
from webhook.cluster.tally import Tally
from webhook.cluster.watches import Watches
from webhook.kube.connection import Connection
from webhook.kube.reflector import DEFAULT_TIMING, Timing


class Estate:
    """Counts devices while it is told to; ``restarted`` is told of watches that were lost.

    What is not a pool's device is neither kept nor counted. What cannot be counted: devices of a
    resource that only a DeviceClass ties to a pool, and what claims wait for without saying how
    much (``webhook.cluster.holders.of_claim``).
    """

    def __init__(
        self,
        connection: Connection,
        policy: Policy,
        *,
        restarted: Callable[[str], None] = lambda _name: None,
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        self.policy = policy
        self._connection = connection
        self._counting = False
        self._watches = Watches(
            connection, restarted=restarted, clock=time.monotonic, timing=timing
        )
        self._pods = Tally[PodObject, Holding](lambda pod: of_pod(pod, self.policy))
        self._claims = Tally[ClaimObject, Holding](lambda claim: of_claim(claim, self.policy))
        self._nodes = Tally[NodeObject, str](lambda node: of_node(node, self.policy))

    def use(self, policy: Policy) -> None:
        """Count the devices of this policy's pools; until it is done, what is known stands."""
        before, self.policy = self.policy, policy
        if self._counting and _devices(before) != _devices(policy):
            for collection in (PODS, CLAIMS, NODES):
                self._watches.begin_anew(collection)

    async def keep(self, wanted: bool) -> None:
        """Begin to count, or end it and forget; do nothing where that is so already.

        Raises:
            ConfigurationError: there is no way to the cluster.
        """
        if wanted == self._counting:
            return
        if wanted:
            await self._connection.prepare()
            self._watches.start()
        else:
            await self._watches.stop()
            await self._connection.close()
        self._watches.need(PODS, self._pods, wanted)
        self._watches.need(CLAIMS, self._claims, wanted)
        self._watches.need(NODES, self._nodes, wanted)
        self._counting = wanted

    def holdings(self) -> Iterator[tuple[Holding, int]]:
        """Yield the devices that are held or waited for; none until all of them are known."""
        if not self._watches.has(PODS) or not self._watches.has(CLAIMS):
            return
        yield from self._pods.totals.items()
        yield from self._claims.totals.items()

    def allocatable(self) -> Mapping[str, int]:
        """Return the devices of all nodes, by resource; none until all of them are known."""
        return self._nodes.totals if self._watches.has(NODES) else {}

    def staleness(self) -> dict[str, float | None]:
        """Return the seconds since each collection was last heard of, ``None`` for never."""
        return self._watches.staleness()

    def objects(self) -> dict[str, int]:
        """Return how many objects are kept of each collection: those with devices of a pool."""
        return self._watches.objects()


def _devices(policy: Policy) -> set[object]:
    """Return what decides which devices are counted."""
    return {(pool.resources, pool.device_classes) for pool in policy.pools}
