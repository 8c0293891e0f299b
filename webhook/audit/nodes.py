"""Nodes that offer a pool's devices and are not fenced as the policy says that they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from policies.finding import Finding
from policies.policy import Pool
from webhook.audit.pools import PoolNode, PoolState

WITHOUT_TAINT = "gpu-node-without-taint"
WITHOUT_LABEL = "gpu-node-without-label"


class NodeFindings(NamedTuple):
    """The findings of one node; ``uid`` is empty unless it was requested."""

    name: str
    uid: str
    findings: tuple[Finding, ...]


def node_findings(states: Iterable[PoolState], uids: Mapping[str, str]) -> list[NodeFindings]:
    """Return the nodes with which something is wrong; ``uids`` are those of nodes, by name.

    No policy can enforce anything on a node: these findings warn.
    """
    found: dict[str, list[Finding]] = {}
    for state in states:
        for node in state.nodes.values():
            if findings := list(_of_node(node, state.pool)):
                found.setdefault(node.name, []).extend(findings)
    return [
        NodeFindings(name, uids.get(name, ""), tuple(findings)) for name, findings in found.items()
    ]


def _of_node(node: PoolNode, pool: Pool) -> Iterator[Finding]:
    offers = ", ".join(f"{name}: {count}" for name, count in node.offered.items())
    belongs = f"it offers {offers}" if offers else "it carries the pool's labels"
    if not node.has_taint:
        taints = " or ".join(map(str, pool.taints))
        yield Finding(
            WITHOUT_TAINT,
            "spec.taints",
            "a GPU node without its pool's taint takes every Pod",
            f"{belongs}, so it belongs to pool {pool.name}, and carries no taint {taints}",
            f"Run kubectl taint node {node.name} {_taint(pool)}",
            "warn",
        )
    if not node.has_label:
        labels = " ".join(f"{key}={value}" for key, value in pool.node_selector.items())
        yield Finding(
            WITHOUT_LABEL,
            "metadata.labels",
            "a GPU node without its pool's labels gets no GPU Pod",
            f"{belongs} of pool {pool.name}, whose Pods are sent to nodes with {labels}",
            f"Run kubectl label node {node.name} {labels}",
            "warn",
        )


def _taint(pool: Pool) -> str:
    taint = next(t for t in pool.taints if t.effect != "PreferNoSchedule")
    return f"{taint.key}={taint.value or 'present'}:{taint.effect}"
