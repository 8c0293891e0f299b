"""The report for people: a verdict on each object, why, and what changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from webhook.cli.manifests.evaluate import Result, Verdict
from webhook.cli.report.content import CheckReport
from webhook.cli.report.findings import rule_page
from webhook.cli.report.lines import Line, Span
from webhook.cli.report.result_lines import (
    change_lines,
    excepted_line,
    finding_lines,
    heading,
    unjudged_lines,
)
from webhook.cli.report.summary import verdict_counts
from webhook.wording import counted, printable


def report(content: CheckReport) -> Iterator[Line]:
    """Yield the report, line by line, as the results come in."""
    verdicts: Counter[Verdict] = Counter()
    rules: dict[str, None] = {}
    warnings = length = 0
    for result in content.results:
        verdicts[result.verdict] += 1
        findings = result.decision.findings if result.decision else ()
        rules |= dict.fromkeys(finding.rule for finding in findings)
        warnings += sum(finding.action == "warn" for finding in findings)
        if content.quiet and not findings and result.error is None:
            continue
        lines = result_lines(result, quiet=content.quiet)
        length = len(lines)
        yield from lines
        if length > 1:
            yield Line()
    if content.quiet:
        return
    if length == 1:
        yield Line()
    yield _summary(verdicts, warnings, content.policy)
    yield from rule_hints(rules)


def result_lines(result: Result, *, quiet: bool) -> list[Line]:
    """Return the lines about one object; quiet ones leave out exceptions and changes."""
    lines = [*heading(result)]
    if result.decision is None:
        return lines
    for finding in result.decision.findings:
        lines += finding_lines(result, finding)
    if quiet:
        return lines
    lines += unjudged_lines(result.decision)
    lines += map(excepted_line, result.decision.excepted)
    if result.verdict in ("mutated", "unknown"):
        lines += change_lines(result.decision)
    return lines


def rule_hints(rules: Iterable[str]) -> Iterator[Line]:
    """Yield the commands that explain the rules."""
    for rule in rules:
        if rule_page(rule):
            yield Line((("Explain the rule: ", "aside"), (f"gpufence explain {rule}", "")))


def _summary(verdicts: Counter[Verdict], warnings: int, policy: str) -> Line:
    spans: list[Span] = [
        (counted(verdicts.total(), "object"), "total"),
        *verdict_counts(verdicts),
    ]
    if warnings:
        spans += [("; ", ""), (counted(warnings, "warning"), "warn")]
    return Line((*spans, (printable(f" (policy: {policy})"), "aside")))
