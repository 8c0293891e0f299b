"""The inventory of GPU devices: what nodes offer, and what Pods and claims hold or wait for.

It feeds metrics only. No rule depends on it. Sources: ``k8s.io/api/core/v1`` and
``k8s.io/api/resource/v1``. Little is read of each object: a Pod has some 8 KB, and there are tens
of thousands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, NamedTuple

import msgspec

from policies.facts import Facts, Request
from policies.kubernetes.core_v1 import ResourceRequirements
from policies.kubernetes.objects import JSONObject
from policies.kubernetes.pod import device_peaks
from policies.policy import Policy, Pool
from policies.reach import nodes_of_pools
from policies.requests import Scope
from webhook.kube.collection import AnnotatedMetadata, Collection, Identity, ItemT_contra
from webhook.kube.nodes import NODES, NodeStore, Offer, offers_of
from webhook.kube.reflector import Watches
from webhook.serve.cluster.facts import ClusterFacts

KEEP_SECONDS = 60.0
"""A replica that no longer leads keeps its inventory for this time: it may lead again."""

# A claim that the scheduler makes of a Pod's extended resource (KEP-5004), which is counted there.
_OF_EXTENDED_RESOURCE = "resource.kubernetes.io/extended-resource-claim"

_EXACT_COUNT = "ExactCount"


class Holding(NamedTuple):
    """Devices that are held (``scheduled``) or waited for: of a resource or a device class."""

    device: str
    namespace: str
    scheduled: bool
    node: str = ""
    """The node of the Pod, if several pools offer the resource."""


class CountedContainer(msgspec.Struct, frozen=True, rename="camel", gc=False):
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None


class CountedPodSpec(msgspec.Struct, frozen=True, rename="camel"):
    containers: list[CountedContainer] | None = None
    init_containers: list[CountedContainer] | None = None
    node_name: str = ""


class CountedPod(msgspec.Struct, frozen=True):
    """The fields of a Pod that the inventory reads."""

    metadata: Identity
    spec: CountedPodSpec = CountedPodSpec()


class ClaimObject(msgspec.Struct, frozen=True):
    """A ResourceClaim, or its template. API servers store only those of the form that they know."""

    metadata: AnnotatedMetadata
    spec: JSONObject = {}
    status: JSONObject = {}


# A Pod that has ended holds no devices; one that is being deleted does.
PODS = Collection(
    "pods", "/api/v1/pods", CountedPod, fields="status.phase!=Succeeded,status.phase!=Failed"
)
CLAIMS = Collection(
    "resourceclaims", "/apis/resource.k8s.io/v1/resourceclaims", ClaimObject, optional=True
)


def pools_of(device: str, policy: Policy) -> tuple[Pool, ...]:
    """Return the pools of a resource or device class, by the policy alone."""
    scope = Scope(policy, Request(), Facts())
    return policy.pools_of_class.get(device) or scope.pools_of_resource(device)


def of_pod(pod: CountedPod, policy: Policy) -> Counter[Holding]:
    """Return the devices that the scheduler reserves for a Pod, of every pool's resources."""
    spec, namespace = pod.spec, pod.metadata.namespace
    holdings: Counter[Holding] = Counter()
    for name, peak in device_peaks(spec.init_containers, spec.containers).items():
        if _is_counted(name, policy):
            node = spec.node_name if len(policy.pools_of_resource(name)) > 1 else ""
            holdings[Holding(name, namespace, bool(spec.node_name), node)] = peak
    return +holdings


def of_claim(claim: ClaimObject, policy: Policy) -> Counter[Holding]:
    """Return the devices of pools' classes that a claim has, or waits for.

    How many are waited for is not known of a request for all devices of a class, and which of them
    not of one with alternatives: these count once they are allocated.
    """
    namespace, allocation = claim.metadata.namespace, claim.status.get("allocation")
    if _OF_EXTENDED_RESOURCE in (claim.metadata.annotations or {}):
        return Counter()
    requests = dict(_device_requests(claim.spec))
    holdings: Counter[Holding] = Counter()
    if allocation is None:
        for path, request in requests.items():
            if "/" not in path and request.get("allocationMode", _EXACT_COUNT) == _EXACT_COUNT:
                waiting = Holding(request.get("deviceClassName", ""), namespace, False)
                holdings[waiting] += request.get("count", 1)
    else:
        for device in allocation.get("devices", {}).get("results") or ():
            if asked := requests.get(device.get("request", "")):
                holdings[Holding(asked.get("deviceClassName", ""), namespace, True)] += 1
    return Counter({key: n for key, n in holdings.items() if key.device in policy.pools_of_class})


def _is_counted(resource: str, policy: Policy) -> bool:
    pools = pools_of(resource, policy)
    return bool(pools) and all(resource not in pool.fractional_resources for pool in pools)


def _device_requests(spec: JSONObject) -> Iterator[tuple[str, JSONObject]]:
    """Yield the requests that reserve devices, by their names in an allocation.

    ``adminAccess`` reserves none: it observes devices of others.
    """
    for request in spec.get("devices", {}).get("requests") or ():
        exactly = request.get("exactly")
        if exactly and not exactly.get("adminAccess"):
            yield request.get("name", ""), exactly
        for alternative in request.get("firstAvailable") or ():
            yield f"{request.get('name', '')}/{alternative.get('name', '')}", alternative


class Tally(Generic[ItemT_contra]):
    """A store that adds up what ``count`` returns of each item.

    Reading the ``sums`` costs nothing that grows with the items.
    """

    def __init__(self, count: Callable[[ItemT_contra], Mapping[Holding, int]]) -> None:
        self.sums: Counter[Holding] = Counter()
        self._count = count
        self._of_item: dict[str, tuple[tuple[Holding, int], ...]] = {}

    def put(self, item: ItemT_contra, /) -> None:
        name, counts = item.metadata.key, self._count(item)
        self.remove(name)
        if counts:
            self._of_item[name] = tuple(counts.items())
            self.sums.update(counts)

    def remove(self, name: str, /) -> None:
        for key, number in self._of_item.pop(name, ()):
            self.sums[key] -= number
            if not self.sums[key]:
                del self.sums[key]

    def names(self) -> Iterable[str]:
        """Return the names of the items that add something."""
        return self._of_item.keys()

    def __len__(self) -> int:
        return len(self._of_item)


class DeviceInventory:
    """Counts the devices of the policy's pools.

    It reads what nodes offer from the ``facts``, and watches the nodes itself only without them.

    It does not count the devices of a resource that only a DeviceClass ties to a pool, or requests
    of claims that name no number (``of_claim``).
    """

    def __init__(self, watches: Watches, policy: Policy, facts: ClusterFacts | None = None) -> None:
        self.policy = policy
        self.watches = watches
        self._facts = facts
        self._running = False
        self._exported = False
        self._exported_at = 0.0
        self._pods = Tally[CountedPod](lambda pod: of_pod(pod, self.policy))
        self._claims = Tally[ClaimObject](lambda claim: of_claim(claim, self.policy))
        self._nodes = NodeStore(policy)

    def use(self, policy: Policy) -> None:
        """Count the devices of this policy's pools.

        The old counts remain until the new ones are complete.
        """
        before, self.policy = self.policy, policy
        self._nodes.use(policy)
        if self._running and before.pools != policy.pools:
            for collection in (PODS, CLAIMS) if self._facts else (PODS, CLAIMS, NODES):
                self.watches.relist(collection)

    async def follow(self, exported: bool) -> None:
        """Count while the counts are ``exported``, and for ``KEEP_SECONDS`` after that.

        Raises:
            ConfigurationError: the cluster's configuration cannot be read.
        """
        now = self.watches.clock()
        if exported:
            self._exported_at = now
            if not self._running:
                await self.watches.start()
                self._running = True
                self._need(True)
        elif now - self._exported_at > KEEP_SECONDS:
            await self.stop()
        self._exported = exported

    async def stop(self) -> None:
        """Stop counting, and forget the counts."""
        if not self._running:
            return
        self._running = self._exported = False
        await self.watches.stop()
        self._need(False)

    def holdings(self) -> Iterator[tuple[Holding, int]]:
        """Yield the devices that are held or pending; none until all collections are listed."""
        if self._exported and {PODS.name, CLAIMS.name} <= self.watches.listed:
            yield from self._pods.sums.items()
            yield from self._claims.sums.items()

    def allocatable(self) -> Mapping[Offer, int]:
        """Return the devices of all nodes; none until the nodes are listed."""
        watches = self.watches if self._facts is None else self._facts.watches
        if not (self._exported and NODES.name in watches.listed):
            return {}
        return offers_of(self._known_nodes.index, self.policy)

    def without_labels(self) -> Mapping[str, int]:
        """Return by pool the nodes with its devices that have the labels of no pool."""
        if not self._exported:
            return {}
        known = nodes_of_pools(self.policy, self._known_nodes.index).without_labels
        return {pool.name: numbers.bit_count() for pool, numbers in known.items()}

    @property
    def _known_nodes(self) -> NodeStore:
        return self._nodes if self._facts is None else self._facts.state.nodes

    def _need(self, needed: bool) -> None:
        self.watches.need(PODS, self._pods, needed)
        self.watches.need(CLAIMS, self._claims, needed)
        self.watches.need(NODES, self._nodes, needed and self._facts is None)
