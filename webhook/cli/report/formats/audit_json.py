"""The report for programs: one AuditReport, which is a CheckReport with the state of the pools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from webhook.audit.cluster_audit import Audit
from webhook.audit.pools import PoolNode, PoolState
from webhook.cli.report.audit_results import place_of
from webhook.cli.report.content import AuditReport
from webhook.cli.report.formats.check_json import report_of_kind


def report(content: AuditReport) -> Iterator[str]:
    """Yield the report as JSON."""
    audit = content.audit
    return report_of_kind(
        "AuditReport",
        content,
        pods=audit.pods,
        unmutatedPods=list(audit.unmutated),
        uselessExceptions=list(audit.exceptions),
        notAudited=list(audit.skipped),
        pools=[_pool(state) for state in audit.pools],
        owners=list(_owners(audit)),
    )


def _pool(state: PoolState) -> dict[str, Any]:
    return {
        "name": state.pool.name,
        "allocatable": state.allocatable,
        "requested": state.requested,
        "waiting": state.waiting,
        "free": state.free,
        "namespaces": {
            name: {"placed": usage.placed, "waiting": usage.waiting}
            for name, usage in sorted(state.by_namespace.items())
        },
        "nodes": [_node(node) for node in state.nodes.values()],
    }


def _node(node: PoolNode) -> dict[str, Any]:
    return {
        "name": node.name,
        "offered": node.offered,
        "free": node.free,
        "hasTaint": node.has_taint,
        "hasLabel": node.has_label,
        "cordoned": node.is_cordoned,
        "held": [
            {
                "namespace": holding.namespace,
                "pod": holding.pod,
                "resource": holding.resource,
                "count": holding.count,
            }
            for holding in node.holdings
        ],
        "trespassers": [pod.workload.owned.full_name for pod in node.trespassers],
    }


def _owners(audit: Audit) -> Iterator[dict[str, Any]]:
    """Yield the topmost owners of Pods, and the objects that only name an owner."""
    for subject in audit.subjects:
        if subject.pods or subject.remark:
            yield {"path": place_of(subject), "pods": subject.pods, "remark": subject.remark}
