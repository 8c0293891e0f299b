"""One audit of one cluster: list its objects, decide on each, and collect the findings."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from policies.kubernetes.claims import Claim
from policies.kubernetes.objects import JSONObject, ObjectKey
from policies.policy import Policy
from webhook.kube.claims import read_claim
from webhook.kube.client import KubeApi
from webhook.kube.collection import Collection, LabeledMetadata
from webhook.kube.errors import FORBIDDEN, NOT_FOUND, ApiError
from webhook.kube.listing import list_all, list_optional
from webhook.kube.nodes import NODES, NodeObject, room_of
from webhook.kube.published import RESOURCE_SLICES, TAINT_RULES
from webhook.serve.cluster.state import NAMESPACES, RUNTIME_CLASSES, ClusterState
from webhook.tools.audit.judge import Inventory, Judge, NodeDetails, RunningPod
from webhook.tools.audit.kinds import WORKLOADS, Discovery, GroupKind, Kind
from webhook.tools.audit.move import Move
from webhook.tools.audit.owners import Owned
from webhook.tools.audit.pools import NodeFindings, PoolState, node_findings, pool_states
from webhook.tools.audit.stack import Unreached
from webhook.tools.audit.subjects import Subject, subjects
from webhook.tools.exceptions import useless_exceptions

Progress = Callable[[str, int], None]
"""Called with the name of a collection, and the number of its objects that are read."""

_SERVER_ERROR = 500
_SHOWN_AFTER = 100

ItemT = TypeVar("ItemT")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit. ``skipped`` has a sentence for all that was not audited."""

    subjects: list[Subject]
    nodes: list[NodeFindings]
    pools: list[PoolState]
    skipped: tuple[str, ...]
    unreached: tuple[Unreached, ...]
    """The DaemonSets of the GPU stack that taints keep off GPU nodes."""
    pods: int
    """The number of audited Pods."""
    unmutated: tuple[str, ...]
    """The running Pods that lack what the policy adds, as namespace/name: they were created while
    no webhook answered, or before gpufence was installed."""
    users: Counter[int | None]
    """The numbers of running Pods with devices, by the user that nodes report (see
    ``RunningPod``)."""
    exceptions: tuple[str, ...]
    """A sentence for each exception of the policy that has expired or covers no finding."""
    settled: frozenset[GroupKind]
    """The kinds whose objects were all listed: an object that was not found does not exist."""


async def audit(
    connection: KubeApi,
    policy: Policy,
    today: date,
    progress: Progress = lambda _title, _count: None,
    move: Move | None = None,
) -> Audit:
    """Check the objects of the cluster against the policy. The audit is read-only.

    ``move`` takes what workloads depend on.

    Exemptions by username do not apply, because objects do not record who created them.

    Raises:
        ClusterError: the cluster cannot be read. A missing permission is not an error.
    """
    # Decoded objects have no cycles. The search for cycles would take up to two thirds of the time.
    gc.disable()
    try:
        return await _audit(_Reader(connection, policy, today, progress, move), policy)
    finally:
        gc.enable()


async def _audit(reader: _Reader, policy: Policy) -> Audit:
    inventory = reader.inventory
    await reader.read_facts()
    await reader.read_workloads()
    pods = await reader.read_pods()
    await reader.read_owners(pod.owned for pod in pods)
    await reader.read_owners(judged.owned for judged in list(inventory.workloads))
    provided = frozenset(inventory.facts.extended_resource_classes.values())
    states = pool_states(policy, inventory.nodes, pods, inventory.node_details, provided)
    # Unreadable objects are reported as well.
    owners = subjects(policy, inventory, pods, states)
    return Audit(
        owners,
        node_findings(states),
        states,
        tuple(dict.fromkeys(inventory.skipped)),
        tuple(inventory.unreached),
        len(pods),
        tuple(pod.owned.full_name for pod in pods if pod.lacks_mutations),
        Counter(pod.user for pod in pods if pod.node and pod.devices),
        tuple(_unused_exceptions(policy, inventory)),
        inventory.settled,
    )


def _unused_exceptions(policy: Policy, inventory: Inventory) -> Iterator[str]:
    useless = dict(useless_exceptions(policy, inventory.today))
    for index, entry in enumerate(policy.exceptions):
        problem = useless.get(index)
        if problem is None and not any(entry.covers(*found) for found in inventory.excepted):
            problem = "covers no finding of this audit"
        if problem is not None:
            yield f"spec.exceptions[{index}] of the policy ({entry.reason}) {problem}"


class ClaimObject(msgspec.Struct, frozen=True):
    """A ResourceClaim, or its template. API servers store only those of the form that they know."""

    metadata: LabeledMetadata
    spec: JSONObject = {}
    status: JSONObject = {}


# A Pod that has ended holds no devices; one that is being deleted does.
PODS = Collection(
    "pods", "/api/v1/pods", msgspec.Raw, fields="status.phase!=Succeeded,status.phase!=Failed"
)
_CLAIMS = Collection(
    "resourceclaims", "/apis/resource.k8s.io/v1/resourceclaims", ClaimObject, optional=True
)
_CLAIM_TEMPLATES = Collection(
    "resourceclaimtemplates",
    "/apis/resource.k8s.io/v1/resourceclaimtemplates",
    ClaimObject,
    optional=True,
)

_WITHOUT = {
    NODES.name: "the report does not show pools and their nodes",
    NAMESPACES.name: "rules that depend on their labels are not evaluated",
    RUNTIME_CLASSES.name: "each RuntimeClass is assumed to exist",
    PODS.name: "no Pod is audited",
    RESOURCE_SLICES.name: "the devices of DRA drivers are not counted",
    TAINT_RULES.name: "tainted devices count as free",
}
_WITHOUT_CLAIMS = "Pods with claims may not count as GPU Pods"
"""What an audit lacks without a collection; of dynamic resource allocation, all lack the same."""


class _Reader:
    """Reads what an audit needs, a collection at a time, into one inventory."""

    def __init__(
        self,
        connection: KubeApi,
        policy: Policy,
        today: date,
        progress: Progress,
        move: Move | None,
    ) -> None:
        self.inventory = Inventory(today=today)
        self._connection = connection
        self._policy = policy
        self._progress = progress
        self._judge = Judge(self.inventory, policy, move)
        self._discovery = Discovery(connection)
        self._requested: set[GroupKind] = set()

    async def read_facts(self) -> None:
        """Read what decisions depend on besides the objects."""
        inventory, state = self.inventory, ClusterState(self._policy)
        claims: dict[ObjectKey, Claim] = {}
        templates: dict[ObjectKey, Claim] = {}

        def take_node(item: NodeObject) -> None:
            state.nodes.put(item)
            inventory.node_details[item.metadata.name] = NodeDetails(
                item.metadata.uid, bool(item.spec.unschedulable), room_of(item.status)
            )

        def take_claim(item: ClaimObject) -> None:
            claims[item.metadata.namespace, item.metadata.name] = read_claim(item.spec, item.status)

        def take_template(item: ClaimObject) -> None:
            spec = item.spec.get("spec")
            templates[item.metadata.namespace, item.metadata.name] = read_claim(spec)

        nodes = await self._deciding(NODES, take_node)
        await self._deciding(NAMESPACES, state.namespaces.put)
        runtime_classes = await self._deciding(RUNTIME_CLASSES, state.runtime_classes.put)
        await list_optional(self._connection, state.template_stores)
        for collection, store in state.offers.published.items():
            await self._deciding(collection, store.put)
        inventory.skipped += state.slices.problems
        if self._policy.pools_of_class:
            await self._deciding(_CLAIMS, take_claim)
            await self._deciding(_CLAIM_TEMPLATES, take_template)
        inventory.nodes = None if nodes is None else state.nodes.index
        inventory.namespace_labels = state.namespaces.all
        read = {NODES.name: nodes, RUNTIME_CLASSES.name: runtime_classes}
        known = {name for name, items in read.items() if items is not None}
        inventory.facts = replace(state.facts(known), claims=claims, claim_templates=templates)

    async def read_workloads(self) -> None:
        """Decide on all workloads: built-in kinds, and the custom ones of the policy."""
        for kind in WORKLOADS:
            await self._workloads(kind)
        for custom in self._policy.custom_workloads:
            for kind in await self._discovery.kinds(custom.group):
                if kind.resource in custom.resources and kind.is_namespaced:
                    await self._workloads(kind)
            if error := self._discovery.unavailable.get(custom.group):
                self.inventory.skipped.append(
                    f"{custom.group}: not listed completely, so some objects may not be audited; "
                    f"check its API server: {error}"
                )

    async def read_pods(self) -> list[RunningPod]:
        """Decide on each Pod that has not ended; none if the account may not list Pods."""
        collection = Collection(PODS.name, PODS.path, msgspec.Raw, fields=PODS.fields)
        judged = await self._deciding(collection, self._judge.pod)
        return [pod for pod in judged or () if pod is not None]

    async def read_owners(self, objects: Iterable[Owned]) -> None:
        """List the kinds that own one of the objects, and the owners of these, and so on.

        This finds owners of kinds that gpufence does not know.
        """
        owner_keys = {obj.owner.key for obj in objects if obj.owner}
        listed: set[GroupKind] = set()
        while missing := sorted(owner_keys - self.inventory.owners.listed - listed):
            listed.update(missing)
            for group, name in missing:
                kinds = await self._discovery.kinds(group) if group else ()
                kind = next((each for each in kinds if each.kind == name), None)
                if kind is not None and not kind.is_namespaced:
                    self.inventory.owners.clusterwide.add(kind.key)
                elif kind is not None:
                    owned = await self._workloads(kind)
                    owner_keys |= {obj.owner.key for obj in owned if obj.owner}

    async def _workloads(self, kind: Kind) -> list[Owned]:
        """Decide on the objects of a kind and return them; none if it is already listed."""
        if kind.key in self._requested:
            return []
        self._requested.add(kind.key)
        workloads = await self._list(
            Collection(kind.resource, kind.path, JSONObject),
            partial(self._judge.workload, kind=kind),
            "its objects are not audited",
            custom=kind not in WORKLOADS,
        )
        if workloads is None:
            return []
        owned = [judged.owned for judged in workloads]
        self.inventory.workloads += workloads
        self.inventory.owners.add(kind.key, owned)
        return owned

    async def _deciding(
        self, collection: Collection[ItemT], take: Callable[[ItemT], T]
    ) -> list[T] | None:
        """List a collection that decisions on workloads depend on."""
        without = _WITHOUT.get(collection.name, _WITHOUT_CLAIMS)
        items = await self._list(collection, take, without)
        self.inventory.is_whole = self.inventory.is_whole and items is not None
        return items

    async def _list(
        self,
        collection: Collection[ItemT],
        take: Callable[[ItemT], T],
        without: str,
        *,
        custom: bool = False,
    ) -> list[T] | None:
        """List a collection; None if that is forbidden, or if there is no such collection.

        For custom resources, server errors count as well: a broken conversion webhook must not end
        the audit.
        """
        title, count = collection.title, 0

        def counted(item: ItemT) -> T:
            nonlocal count
            count += 1
            if count % _SHOWN_AFTER == 0:
                self._progress(title, count)
            return take(item)

        try:
            return await list_all(
                self._connection,
                collection.path,
                collection.item,
                counted,
                fields=collection.fields,
            )
        except ApiError as error:
            if error.status == FORBIDDEN:
                remediation = "allow the verb list"
            elif custom and error.status >= _SERVER_ERROR:
                remediation = "check its API server or its conversion webhook"
            elif error.status == NOT_FOUND:
                return [] if collection.optional else None
            else:
                raise ApiError(error.status, f"{title}: {error.message}") from error
            self.inventory.skipped.append(
                f"{title}: not listed, so {without}; {remediation}: {error}"
            )
        return None
