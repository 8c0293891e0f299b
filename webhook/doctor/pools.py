"""Whether there is a valid policy, and whether the GPU nodes are fenced as it says."""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy
from webhook.audit.inventory import Inventory
from webhook.audit.nodes import node_findings
from webhook.audit.pools import pool_states
from webhook.doctor.installation import Installation
from webhook.doctor.line import Line, fail, ok, skip


def check(found: Installation) -> Iterator[Line]:
    """Yield a line for the policy, and one for its nodes, or for each that is not fenced."""
    if "policy" in found.refused:
        yield skip("policy", f"may not be read: {found.refused['policy']}", "Give --policy FILE")
    elif found.policy is None:
        yield fail(
            "policy",
            found.policy_problem,
            "Mend it; until then replicas go by the one that they have read before",
        )
    else:
        pools = ", ".join(pool.name for pool in found.policy.pools)
        yield ok("policy", f"{found.policy_source} is valid, with pool {pools}")
        yield from _nodes(found, found.policy)


def _nodes(found: Installation, policy: Policy) -> Iterator[Line]:
    if "nodes" in found.refused:
        yield skip("nodes", f"may not be listed: {found.refused['nodes']}")
        return
    states = pool_states(policy, Inventory(nodes=found.nodes), ())
    broken = node_findings(states, {})
    for node in broken:
        for finding in node.findings:
            yield fail(
                "nodes",
                f"node {node.name}: {finding.reason}; {finding.detail}",
                finding.remediation,
            )
    if not broken:
        count = sum(len(state.nodes) for state in states)
        if count:
            yield ok("nodes", f"{count} of pools, each with taint and labels")
        else:
            yield skip("nodes", "no node offers a pool's devices or carries its labels")
