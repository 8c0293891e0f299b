"""One audit of one cluster."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from policies.policy import Policy
from webhook.audit.inventory import Taker
from webhook.audit.kinds import GroupKind
from webhook.audit.nodes import NodeFindings, node_findings
from webhook.audit.pods import running_pod
from webhook.audit.pools import PoolState, pool_states
from webhook.audit.subjects import Subject, subjects
from webhook.kube.connection import Connection


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit found. ``untold`` says what could not be listed, and what follows of it."""

    subjects: list[Subject]
    nodes: list[NodeFindings]
    pools: list[PoolState]
    untold: tuple[str, ...]
    pods: int
    """How many running Pods were judged."""
    unmutated: tuple[str, ...]
    """The running Pods that lack what the policy adds, as namespace/name: they were created while
    no webhook answered, or before gpufence was installed."""
    settled: frozenset[GroupKind]
    """The kinds of which all was seen: what was not found of their objects is not there."""


async def audit(connection: Connection, policy: Policy, today: date) -> Audit:
    """Judge everything that is in the cluster by the policy; nothing is changed there.

    What the request alone knows is not known any more: exemptions by username are not applied.

    Raises:
        ClusterError: the cluster cannot be read. A kind that may not be listed is not an error.
    """
    taker = Taker(connection, policy, today)
    inventory = await taker.take()
    found = await taker.pods(lambda obj: running_pod(obj, inventory, policy))
    pods = [pod for pod in found if pod is not None]
    await taker.take_owners([pod.workload.owned for pod in pods])
    await taker.take_owners([workload.owned for workload in inventory.workloads])
    states = pool_states(policy, inventory, pods)
    # Unreadable objects are reported as well.
    owners = subjects(policy, inventory, pods, states)
    nodes = node_findings(states, inventory.node_uids)
    unmutated = tuple(
        f"{pod.workload.owned.namespace}/{pod.workload.owned.name}"
        for pod in pods
        if pod.decision.operations
    )
    untold = tuple(inventory.untold)
    return Audit(owners, nodes, states, untold, len(pods), unmutated, inventory.settled)
