"""The reports of an audit: those of a check, and the pools as they are now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from webhook.audit.cluster_audit import Audit
from webhook.audit.pools import PoolState
from webhook.audit.words import counted
from webhook.cli.manifests.evaluate import VERDICTS, Result
from webhook.cli.printable import printable
from webhook.cli.report import formats
from webhook.cli.report.audit_results import place_of
from webhook.cli.report.lines import Line, Role

KIND = "AuditReport"


def lines(audit: Audit, results: Iterable[Result], quiet: bool) -> Iterator[Line]:
    """Yield the report for people: the pools, what was found, and what was not looked at.

    A quiet one has only what was found.
    """
    from webhook.cli.report import text

    kept = list(results)
    if not quiet:
        yield from _pools(audit)
    yield from text.report(kept, quiet=True)
    if quiet:
        return
    for subject in audit.subjects:
        if subject.remark:
            remark = f"{place_of(subject)}: stands for itself: {subject.remark}"
            yield Line(((printable(remark), "aside"),))
    for untold in audit.untold:
        yield Line((("not seen  ", "warn"), (printable(untold), "")))
    yield _summary(audit, kept)


def report(audit: Audit, title: str, name: str, results: Iterable[Result]) -> Iterable[str]:
    """Return the report in one of the other formats; ``title`` says which cluster, and when."""
    if name == "html":
        return _html(audit, title, results)
    if name == "json":
        from webhook.cli.report import json

        return json.report(
            results,
            KIND,
            pods=audit.pods,
            untold=list(audit.untold),
            pools=[_pool(state) for state in audit.pools],
            owners=list(_owners(audit)),
        )
    return formats.report(name, results)


def _html(audit: Audit, title: str, results: Iterable[Result]) -> Iterator[str]:
    from webhook.cli.report import html, html_pools

    sections = [html_pools.section(audit.pools)] if audit.pools else []
    numbers = html_pools.numbers(audit.pools, audit.pods)
    notes = list(audit.untold) + [
        f"{place_of(subject)}: stands for itself: {subject.remark}"
        for subject in audit.subjects
        if subject.remark
    ]
    return html.report(results, "gpufence audit", title, numbers, sections, notes)


def _pools(audit: Audit) -> Iterator[Line]:
    for state in audit.pools:
        yield Line(
            (
                ("pool ", ""),
                (state.pool.name, "object"),
                (f"  {state.summary}; ", ""),
                (
                    counted(state.trespassers, "trespasser"),
                    "denied" if state.trespassers else "aside",
                ),
            )
        )
        width = max(map(len, state.by_namespace), default=0)
        for namespace, usage in sorted(state.by_namespace.items()):
            text = (
                f"{namespace.ljust(width)}  {usage.placed:>5} on nodes  {usage.waiting:>5} waiting"
            )
            yield Line(((text, ""),), indent=2)
    if audit.pools:
        yield Line()


def _summary(audit: Audit, results: list[Result]) -> Line:
    verdicts = Counter(result.verdict for result in results)
    spans: list[tuple[str, Role]] = [
        (f"{counted(len(results), 'object')} with {counted(audit.pods, 'running Pod')}", "total")
    ]
    for verdict in VERDICTS:
        if verdicts[verdict]:
            start = ": " if len(spans) == 1 else ", "
            spans += [(start, ""), (f"{verdicts[verdict]} {verdict}", verdict)]
    return Line((*spans, (".", "")))


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
        "nodes": [
            {
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
                "trespassers": [
                    f"{pod.workload.owned.namespace}/{pod.workload.owned.name}"
                    for pod in node.trespassers
                ],
            }
            for node in state.nodes.values()
        ],
    }


def _owners(audit: Audit) -> Iterator[dict[str, Any]]:
    """Yield the topmost owners of Pods, and those that only name an owner."""
    for subject in audit.subjects:
        if subject.pods or subject.remark:
            yield {"path": place_of(subject), "pods": subject.pods, "remark": subject.remark}
