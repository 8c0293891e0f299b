"""The report for people: the pools, the findings by severity, and what is not audited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from webhook.audit.cluster_audit import Audit
from webhook.cli.manifests.evaluate import Result
from webhook.cli.report.audit_results import pool_summary, remarks
from webhook.cli.report.content import AuditReport
from webhook.cli.report.formats.check_text import result_lines, rule_hints
from webhook.cli.report.lines import Line, Span
from webhook.cli.report.summary import by_severity, verdict_counts
from webhook.wording import counted, printable


def report(content: AuditReport) -> Iterator[Line]:
    """Yield the report; a quiet one has only the findings."""
    results = sorted(content.results, key=by_severity)
    if not content.quiet:
        yield from _pools(content.audit)
    rules: dict[str, None] = {}
    for result in results:
        findings = result.decision.findings if result.decision else ()
        rules |= dict.fromkeys(finding.rule for finding in findings)
        if findings or result.error is not None:
            yield from result_lines(result, quiet=True)
            yield Line()
    if content.quiet:
        return
    for remark in remarks(content.audit):
        yield Line(((printable(remark), "aside"),))
    for skipped in content.audit.skipped:
        yield Line((("not audited  ", "warn"), (printable(skipped), "")))
    yield _summary(content, results)
    yield from rule_hints(rules)


def _pools(audit: Audit) -> Iterator[Line]:
    for state in audit.pools:
        yield Line(
            (
                ("pool ", ""),
                (state.pool.name, "object"),
                (f"  {pool_summary(state)}; ", ""),
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


def _summary(content: AuditReport, results: list[Result]) -> Line:
    verdicts = Counter(result.verdict for result in results)
    pods = counted(content.audit.pods, "running Pod")
    spans: list[Span] = [
        (f"{counted(len(results), 'object')} with {pods}", "total"),
        *verdict_counts(verdicts),
        (printable(f" (policy: {content.policy})"), "aside"),
    ]
    return Line(tuple(spans))
