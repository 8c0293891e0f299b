"""Whether the policy is valid, and whether the GPU nodes have its taints and labels."""

from __future__ import annotations

from collections.abc import Iterator

from policies.kubernetes.nodes import NodeIndex
from policies.policy import Policy
from webhook.audit.inventory import Inventory
from webhook.audit.nodes import node_findings
from webhook.audit.pools import pool_states
from webhook.audit.templates import label_problems
from webhook.doctor.installation import Installation
from webhook.doctor.line import Line, fail, ok, skip, warn


def check(installed: Installation) -> Iterator[Line]:
    """Yield a line for the policy, and one for the nodes or for each problem of a node."""
    if "policy" in installed.forbidden:
        yield skip(
            "policy", f"cannot read it: {installed.forbidden['policy']}", "Set --policy FILE"
        )
    elif installed.policy is None:
        yield fail(
            "policy",
            installed.policy_problem,
            "Fix the policy. Until then, replicas keep using the last valid policy",
        )
    else:
        pools = ", ".join(pool.name for pool in installed.policy.pools)
        yield ok("policy", f"{installed.policy_source} is valid; its pools: {pools}")
        yield from _nodes(installed, installed.policy)
        if installed.templates:
            for problem in label_problems(
                installed.policy, installed.nodes or NodeIndex(), installed.templates
            ):
                yield warn("node labels", problem.problem, problem.remediation)


def _nodes(installed: Installation, policy: Policy) -> Iterator[Line]:
    if "nodes" in installed.forbidden:
        yield skip("nodes", f"cannot list them: {installed.forbidden['nodes']}")
        return
    states = pool_states(policy, Inventory(nodes=installed.nodes), ())
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
            yield ok("nodes", f"{count} GPU nodes, each with the taint and the labels of its pool")
        else:
            yield skip("nodes", "no node offers devices of a pool or has its labels")
