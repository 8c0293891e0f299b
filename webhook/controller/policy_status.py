"""The status of a FencePolicy: what is active, what is registered, and whether the nodes fit."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from policies.kubernetes.nodes import NodeIndex
from policies.kubernetes.objects import JSONObject
from policies.policy import Policy
from policies.pool_nodes import NodesOfPools, nodes_of_pools
from policies.wording import listing
from webhook.active_policy import PATH, ActivePolicy
from webhook.kube.writer import KubeWriter
from webhook.wording import counted, some

_MOST_CHARACTERS = 8192
"""The longest message of a condition; the schema of the object accepts 32768."""

Condition = tuple[str, str, str, str]
"""Type, status, reason and message."""


async def publish(
    api: KubeWriter, policy: ActivePolicy, registered: Condition, nodes: NodeIndex | None
) -> None:
    """Write the status of the newest object, unless it has it.

    Raises:
        ClusterError: a request failed.
    """
    if policy.newest is None:
        return
    before = policy.newest.status or {}
    wanted = status(policy, registered, nodes, before, api.clock.now())
    if wanted != before:
        await api.merge(f"{PATH}/{policy.name}/status", {"status": wanted})


def status(
    policy: ActivePolicy,
    registered: Condition,
    nodes: NodeIndex | None,
    before: JSONObject,
    now: datetime,
) -> JSONObject:
    """Return the status. A condition keeps the time at which its status last changed."""
    generation = policy.newest.metadata.generation if policy.newest else 0
    conditions = [_accepted(policy), registered, _nodes_fit(policy.current, nodes)]
    times = {each["type"]: each for each in before.get("conditions") or ()}
    listed = []
    for kind, value, reason, message in conditions:
        old = times.get(kind, {})
        since = (
            old["lastTransitionTime"] if old.get("status") == value else f"{now:%Y-%m-%dT%H:%M:%SZ}"
        )
        listed.append(
            {
                "type": kind,
                "status": value,
                "observedGeneration": generation,
                "lastTransitionTime": since,
                "reason": reason,
                "message": message[:_MOST_CHARACTERS],
            }
        )
    return {
        "observedGeneration": generation,
        "mode": policy.current.mode,
        "pools": [pool.name for pool in policy.current.pools],
        "conditions": listed,
    }


def _accepted(policy: ActivePolicy) -> Condition:
    if policy.problems:
        return "Accepted", "False", "Invalid", f"{policy.problem}."
    return "Accepted", "True", "Valid", "Replicas apply the policy."


def registered(problem: str, drift: str, continues: bool) -> Condition:
    """Return the condition: what failed, or which changes of other clients were repaired."""
    if problem:
        return "Registered", "False", "Failed", problem
    if continues:
        return "Registered", "False", "Drift", f"Another client keeps changing them. {drift}"
    message = "Webhook configurations and admission policies follow the policy."
    return "Registered", "True", "Written", f"{message} {drift}".rstrip()


def _nodes_fit(policy: Policy, nodes: NodeIndex | None) -> Condition:
    if nodes is None:
        return "NodesFit", "Unknown", "NotListed", "The nodes are not known."
    known = nodes_of_pools(policy, nodes)
    shared = "".join(
        f" Nodes of both pools {pool.name} and {other.name}: "
        f"{some(sorted(node.name for node in nodes.nodes(numbers)))}."
        for pool, other in policy.overlaps()
        if (numbers := known.of(pool) & known.of(other))
    )
    problems = " ".join(_node_problems(policy, nodes, known))
    if problems:
        return "NodesFit", "False", "NodesDiffer", problems + shared
    message = "The nodes have the labels and taints of the pools."
    # An autoscaler may add some.
    if empty := [pool.name for pool in policy.pools if not known.of(pool)]:
        message += f" No node belongs to {listing(empty)} at the moment."
    return "NodesFit", "True", "LabelsAndTaints", message + shared


def _node_problems(policy: Policy, nodes: NodeIndex, known: NodesOfPools) -> Iterator[str]:
    for pool in policy.pools:
        unlabeled = [node.name for node in nodes.nodes(known.lacking_labels(pool))]
        if unlabeled:
            yield f"{_lack(unlabeled, f'with devices of pool {pool.name}')} its labels."
        members = nodes.nodes(known.of(pool))
        bare = [node.name for node in members if not node.is_fenced_by(pool.fence)]
        if pool.fence and bare:
            yield f"{_lack(bare, f'of pool {pool.name}')} its taints."


def _lack(names: list[str], which: str) -> str:
    """Return the start of a sentence: ``2 nodes of pool a (gpu-1, gpu-2) lack``."""
    verb = "lacks" if len(names) == 1 else "lack"
    return f"{counted(len(names), 'node')} {which} ({some(sorted(names))}) {verb}"
