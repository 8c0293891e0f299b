"""GPU nodes without the taint or the labels of their pool."""

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
    """Return the nodes with findings; ``uids`` are the UIDs of nodes, by name.

    gpufence does not reject Nodes, so these findings are warnings.
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
    belongs = f"the node offers {offers}" if offers else "the node has the labels of the pool"
    if not node.has_taint:
        taints = " or ".join(map(str, pool.taints))
        yield Finding(
            WITHOUT_TAINT,
            "spec.taints",
            "a GPU node lacks the taint of its pool",
            f"{belongs}, so it belongs to pool {pool.name}, but it has no taint {taints}; every "
            "Pod can run on it",
            f"Run kubectl taint node {node.name} {_taint(pool)}",
            "warn",
        )
    if not node.has_label:
        labels = " ".join(f"{key}={value}" for key, value in pool.node_selector.items())
        yield Finding(
            WITHOUT_LABEL,
            "metadata.labels",
            "a GPU node lacks the labels of its pool",
            f"{belongs} of pool {pool.name}, but not its labels; GPU Pods run only on nodes with "
            f"{labels}",
            f"Run kubectl label node {node.name} {labels}",
            "warn",
        )


def _taint(pool: Pool) -> str:
    taint = next(t for t in pool.taints if t.effect != "PreferNoSchedule")
    return f"{taint.key}={taint.value or 'present'}:{taint.effect}"
