"""The report for people: a verdict on each object, why, and what would change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from policies.engine import Decision
from policies.finding import Finding
from policies.kubernetes.templates import is_core_workload
from webhook.cli.manifests.evaluate import Result, Verdict
from webhook.cli.manifests.sentence import explanation, place
from webhook.cli.printable import printable
from webhook.cli.report.lines import Line, Role
from webhook.cli.report.places import finding_place

# What writes YAML is needed where something is changed, and takes longer to import than to check.
if TYPE_CHECKING:
    from webhook.cli.report.difference import Mark, Marked

_WIDTH = max(map(len, ("allowed", "mutated", "denied", "skipped", "invalid")))
_SUMMARY_ORDER: tuple[Verdict, ...] = ("invalid", "denied", "mutated", "allowed", "skipped")
_MARK_ROLES: dict[Mark, Role] = {" ": "", "+": "added", "-": "removed", "@": "aside"}


def report(results: Iterable[Result], *, quiet: bool = False) -> Iterator[Line]:
    """Yield the report, line by line, while the results come in.

    A quiet one has only what somebody has to see to: findings, and what is broken.
    """
    verdicts: Counter[Verdict] = Counter()
    warned = 0
    length = 0
    for result in results:
        verdicts[result.verdict] += 1
        findings = result.decision.findings if result.decision else ()
        warned += sum(finding.action == "warn" for finding in findings)
        if quiet and not findings and result.error is None:
            continue
        lines = _result(result, quiet=quiet)
        length = len(lines)
        yield from lines
        if length > 1:
            yield Line()
    if quiet:
        return
    if length == 1:
        yield Line()
    yield _summary(verdicts, warned)


def heading(result: Result) -> Iterator[Line]:
    """Yield the verdict, the object and its place; of what is broken, what is wrong with it."""
    document = result.manifest.document
    start = f"{document.path}:{result.manifest.line}" if document.text else document.path
    yield Line(
        (
            (result.verdict.ljust(_WIDTH), result.verdict),
            ("  ", ""),
            (printable(_title(result)), "object"),
            ("  ", ""),
            (printable(start), "place"),
            (printable(_remark(result)), "aside"),
        )
    )
    if result.error is not None:
        where, what = place(document, result.error), explanation(document, result.error)
        yield Line(((printable(f"{where}: "), "place"), (printable(what), "")), indent=2)


def finding_lines(result: Result, finding: Finding) -> Iterator[Line]:
    """Yield one finding of an object: rule and place, what is wrong, and what to do."""
    found = finding_place(result, finding)
    yield Line(
        (
            (finding.action, finding.action if finding.action != "off" else ""),
            ("  ", ""),
            (finding.rule, "rule"),
            ("  ", ""),
            (printable(f"{found.path}:{found.line}" if found.line else found.path), "place"),
            ("  ", ""),
            (printable(finding.path), ""),
        ),
        indent=2,
    )
    yield Line(((printable(f"{finding.reason}: {finding.detail}."), ""),), indent=4)
    if finding.advice:
        yield Line((("advice: ", "advice"), (printable(f"{finding.advice}."), "")), indent=4)


def _result(result: Result, *, quiet: bool) -> list[Line]:
    lines = [*heading(result)]
    if result.decision is None:
        return lines
    for finding in result.decision.findings:
        lines += finding_lines(result, finding)
    if quiet:
        return lines
    for finding in result.decision.excepted:
        text = f"excepted  {finding.rule}  {finding.reason} (at {finding.path})"
        lines.append(Line(((printable(text), "aside"),), indent=2))
    if result.verdict == "mutated":
        lines += _change(result.decision)
    return lines


def _title(result: Result) -> str:
    """Return kind, namespace and name, as far as there are any."""
    if not result.kind:
        if result.verdict == "skipped":
            return "not a Kubernetes object"
        return "document" if result.manifest.document.text else "file"
    name = "/".join(filter(None, (result.namespace, result.name)))
    return f"{result.kind} {name}".rstrip()


def _remark(result: Result) -> str:
    if result.decision is None:
        return ""
    if result.decision.exemption:
        return f"  exempt: {result.decision.exemption}"
    if result.decision.pools:
        return f"  requests devices of pool {', '.join(result.decision.pools)}"
    if not result.decision.has_template and is_core_workload(result.decision.original):
        # A whole one an API server refuses, and so does the webhook.
        return "  has no pod template, as if it were a patch"
    return ""


def _change(decision: Decision) -> list[Line]:
    """Return the change of the object as YAML."""
    from webhook.cli.report.difference import difference

    marked = difference(decision.original, decision.mutated)
    return [marked_line(each, indent=2) for each in marked]


def marked_line(marked: Marked, indent: int) -> Line:
    """Return a line of a difference as it is shown."""
    shown = "@@" if marked.mark == "@" else f"{marked.mark}{marked.text}"
    return Line(((printable(shown), _MARK_ROLES[marked.mark]),), indent=indent, wraps=False)


def _summary(verdicts: Counter[Verdict], warned: int) -> Line:
    count = verdicts.total()
    spans: list[tuple[str, Role]] = [(f"{count} object{'s'[count == 1 :]}", "total")]
    for verdict in _SUMMARY_ORDER:
        if verdicts[verdict]:
            spans += [
                (": " if len(spans) == 1 else ", ", ""),
                (f"{verdicts[verdict]} {verdict}", verdict),
            ]
    if warned:
        spans += [("; ", ""), (f"{warned} warning{'s'[warned == 1 :]}", "warn")]
    return Line(tuple(spans))
