"""One audit of one cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from policies.exceptions import useless_exceptions
from policies.policy import Policy
from webhook.audit.inventory import Inventory, Taker
from webhook.audit.kinds import GroupKind
from webhook.audit.nodes import NodeFindings, node_findings
from webhook.audit.pods import running_pod
from webhook.audit.pools import PoolState, pool_states
from webhook.audit.subjects import Subject, subjects
from webhook.kube.connection import Connection


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit. ``skipped`` has a sentence for all that was not audited."""

    subjects: list[Subject]
    nodes: list[NodeFindings]
    pools: list[PoolState]
    skipped: tuple[str, ...]
    pods: int
    """The number of audited Pods."""
    unmutated: tuple[str, ...]
    """The running Pods that lack what the policy adds, as namespace/name: they were created while
    no webhook answered, or before gpufence was installed."""
    exceptions: tuple[str, ...]
    """A sentence for each exception of the policy that has expired or covers no finding."""
    settled: frozenset[GroupKind]
    """The kinds whose objects were all listed: an object that was not found does not exist."""


async def audit(connection: Connection, policy: Policy, today: date) -> Audit:
    """Check the objects of the cluster against the policy. The audit is read-only.

    Exemptions by username do not apply, because objects do not record who created them.

    Raises:
        ClusterError: the cluster cannot be read. A missing permission is not an error.
    """
    taker = Taker(connection, policy, today)
    inventory = await taker.take()
    judged = await taker.pods(lambda obj: running_pod(obj, inventory, policy))
    pods = [pod for pod in judged if pod is not None]
    await taker.take_owners([pod.workload.owned for pod in pods])
    await taker.take_owners([workload.owned for workload in inventory.workloads])
    states = pool_states(policy, inventory, pods)
    # Unreadable objects are reported as well.
    owners = subjects(policy, inventory, pods, states)
    nodes = node_findings(states, inventory.node_uids)
    unmutated = tuple(pod.workload.owned.full_name for pod in pods if pod.decision.operations)
    skipped = tuple(inventory.skipped)
    exceptions = tuple(_unused_exceptions(policy, inventory))
    return Audit(
        owners, nodes, states, skipped, len(pods), unmutated, exceptions, inventory.settled
    )


def _unused_exceptions(policy: Policy, inventory: Inventory) -> Iterator[str]:
    useless = dict(useless_exceptions(policy, inventory.today))
    for index, entry in enumerate(policy.exceptions):
        problem = useless.get(index)
        if problem is None and not any(entry.covers(*found) for found in inventory.excepted):
            problem = "covers no finding of this audit"
        if problem is not None:
            yield f"exceptions[{index}] of the policy ({entry.reason}) {problem}"
