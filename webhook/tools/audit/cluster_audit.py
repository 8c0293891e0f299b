"""One audit of one cluster: list its objects, decide on each, and collect the findings."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import partial

import msgspec

from policies.kubernetes.objects import JSONObject
from policies.policy import Policy
from webhook.cluster.kinds import WORKLOADS, GroupKind, Kind
from webhook.cluster.listed import ListedCluster
from webhook.cluster.objects import Reader
from webhook.devices.nodes import NodeObject
from webhook.kube.collection import Collection
from webhook.tools.audit.judge import Inventory, Judge, Judged, NodeDetails
from webhook.tools.audit.owners import Owned
from webhook.tools.audit.pools import NodeFindings, PoolState, node_findings, pool_states
from webhook.tools.audit.stack import (
    StackProblem,
    classes_of_no_pool,
    of_a_network,
    of_several_domains,
)
from webhook.tools.audit.subjects import Subject, subjects
from webhook.tools.exceptions import useless_exceptions

_DEEPEST = 11_000
"""The recursion limit of an audit. API servers accept 10,000 levels of JSON: one claim or custom
resource of a tenant, nested more deeply than by default, would end the audit of all objects."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit. ``skipped`` has a sentence for all that was not audited."""

    subjects: list[Subject]
    nodes: list[NodeFindings]
    pools: list[PoolState]
    skipped: tuple[str, ...]
    stack: tuple[StackProblem, ...]
    """The DaemonSets that taints keep off GPU nodes, and drivers with devices for other nodes."""
    pods: int
    """The number of audited Pods."""
    unmutated: tuple[str, ...]
    """The running Pods that lack what the policy adds, as namespace/name: they were created while
    no webhook answered, or before gpufence was installed."""
    exceptions: tuple[str, ...]
    """A sentence for each exception of the policy that has expired or covers no finding."""
    malformed: tuple[str, ...] = ()
    """The objects that cannot be read, because they are malformed."""
    bugs: tuple[str, ...] = ()
    """The objects at which gpufence fails."""


async def audit(reader: Reader, policy: Policy, today: date) -> Audit:
    """Check the objects of a cluster against the policy. The audit is read-only.

    Exemptions by username do not apply, because objects do not record who created them.

    Raises:
        ClusterError: the cluster cannot be read. A missing permission is not an error.
    """
    lister = _Lister(reader, policy, today)
    # Decoded objects have no cycles. The search for cycles would take up to two thirds of the time.
    gc.disable()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(_DEEPEST)
    try:
        await lister.read()
        return _result_of(lister.inventory, policy)
    finally:
        sys.setrecursionlimit(limit)
        gc.enable()


async def judged_workloads(reader: Reader, policy: Policy, today: date) -> list[Judged]:
    """Decide on each workload, and on each Pod without one, by its own template alone.

    The reader notes what is not judged.
    """
    lister = _Lister(reader, policy, today)
    judged, inventory = await lister.read(), lister.inventory
    top = inventory.owners.top
    return [each for each in judged if not each.is_history and top(each.owned) is each.owned]


def _result_of(inventory: Inventory, policy: Policy) -> Audit:
    groups = inventory.pods.values()
    pods = [group.first for group in groups]
    provided = frozenset(inventory.facts.extended_resource_classes.values())
    states = pool_states(policy, inventory.facts.nodes, pods, inventory.node_details, provided)
    # Unreadable objects are reported as well.
    owners = subjects(inventory, states)
    reader = inventory.reader
    broken = [*reader.malformed, *reader.bugs]
    skipped = [*reader.skipped, *(f"{title}: not read: {problem}" for title, problem in broken)]
    return Audit(
        owners,
        node_findings(states),
        states,
        tuple(dict.fromkeys(skipped)),
        tuple(inventory.stack),
        sum(group.count for group in groups),
        tuple(inventory.unmutated),
        tuple(_unused_exceptions(policy, inventory)),
        tuple(title for title, _ in reader.malformed),
        (*reader.failing, *(title for title, _ in reader.bugs)),
    )


def _unused_exceptions(policy: Policy, inventory: Inventory) -> Iterator[str]:
    useless = dict(useless_exceptions(policy, inventory.today))
    for index, entry in enumerate(policy.exceptions):
        problem = useless.get(index)
        if problem is None and index not in inventory.used_exceptions:
            problem = "covers no finding of this audit"
        if problem is not None:
            yield f"spec.exceptions[{index}] of the policy ({entry.reason}) {problem}"


# A Pod that has ended holds no devices; one that is being deleted does.
PODS = Collection(
    "pods", "/api/v1/pods", msgspec.Raw, fields="status.phase!=Succeeded,status.phase!=Failed"
)


class _Lister:
    """Lists what an audit needs, a collection at a time, into one inventory."""

    def __init__(self, reader: Reader, policy: Policy, today: date) -> None:
        self.inventory = Inventory(reader, policy, ListedCluster(policy), today)
        self._reader = reader
        self._policy = policy
        self._judge = Judge(self.inventory)
        self._requested: set[GroupKind] = set()

    async def read(self) -> list[Judged]:
        """Decide on all workloads, and on each Pod that has not ended, while its page is read.

        Return the workloads and the Pods that are kept.
        """
        await self._read_facts()
        await self._read_workloads()
        await self._reader.read(PODS, self._judge.pod, "no Pod is audited")
        pods = [group.first for group in self.inventory.pods.values()]
        judged = [*self.inventory.workloads, *pods]
        await self._read_owners(each.owned for each in judged)
        return judged

    async def _read_facts(self) -> None:
        """List what decisions depend on besides the objects."""
        inventory = self.inventory

        def take_node(item: NodeObject) -> None:
            details = NodeDetails(item.metadata.uid, bool(item.spec.unschedulable))
            inventory.node_details[item.metadata.name] = details

        await inventory.cluster.read(self._reader, take_node)
        state = inventory.cluster.state
        inventory.stack += of_a_network(self._policy.pools_of_device, state)
        inventory.stack += classes_of_no_pool(self._policy, state)
        inventory.stack += of_several_domains(state.nodes.index)
        inventory.facts = inventory.cluster.facts()

    async def _read_workloads(self) -> None:
        """Decide on built-in kinds, and on the custom ones of the policy."""
        for kind in WORKLOADS:
            await self._workloads(kind)
        for custom in self._policy.custom_workloads:
            for kind in await self._reader.objects.kinds(custom.group):
                if kind.resource in custom.resources and kind.is_namespaced:
                    await self._workloads(kind)
            if error := self._reader.objects.unavailable.get(custom.group):
                self._reader.skipped.append(
                    f"{custom.group}: not listed completely, so some objects may not be audited; "
                    f"check its API server: {error}"
                )

    async def _read_owners(self, objects: Iterable[Owned]) -> None:
        """List the kinds that own one of the objects, and the owners of these, and so on.

        This finds owners of kinds that gpufence does not know.
        """
        owner_keys = {obj.owner.key for obj in objects if obj.owner}
        listed: set[GroupKind] = set()
        while missing := sorted(owner_keys - self.inventory.owners.listed - listed):
            listed.update(missing)
            for group, name in missing:
                kinds = await self._reader.objects.kinds(group) if group else ()
                kind = next((each for each in kinds if each.kind == name), None)
                # The configuration of an operator is cluster-scoped.
                if kind is not None and kind.is_namespaced:
                    owned = await self._workloads(kind)
                    owner_keys |= {obj.owner.key for obj in owned if obj.owner}

    async def _workloads(self, kind: Kind) -> list[Owned]:
        """Decide on the objects of a kind and return them; none if it is already listed."""
        if kind.key in self._requested:
            return []
        self._requested.add(kind.key)
        workloads = await self._reader.read(
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
