"""The reports for people, as lines: text in spans, each with a role that decides its color."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from policies.decision import Decision
from policies.finding import Finding
from policies.kubernetes.template import field_path
from policies.kubernetes.templates import is_core_workload
from webhook.cli.evaluate import Result
from webhook.cli.report.content import (
    AuditReport,
    CheckReport,
    DoctorReport,
    Outcome,
    State,
    SuitesReport,
    by_severity,
    finding_place,
    message,
    pool_summary,
    remediation,
    rule_page,
    verdict_counts,
)
from webhook.cli.report.difference import Mark, Marked, difference
from webhook.documents.document import explanation, place
from webhook.wording import counted, printable

if TYPE_CHECKING:
    from webhook.doctor.line import Status

Role = Literal[
    "",
    "allowed",
    "mutated",
    "denied",
    "unknown",
    "skipped",
    "invalid",
    "enforce",
    "warn",
    "audit",
    "rule",
    "object",
    "place",
    "remediation",
    "added",
    "removed",
    "aside",
    "total",
]

Span = tuple[str, Role]

_WIDTH = len("allowed")
_MAX_UNJUDGED = 3
"""The parts of an object that are listed; the JSON report lists all of them."""

_MARK_ROLES: dict[Mark, Role] = {" ": "", "+": "added", "-": "removed", "@": "aside"}
_STATE_ROLES: dict[State, Role] = {"passed": "allowed", "failed": "denied", "error": "invalid"}
_STATUSES: dict[Status, tuple[Role, str]] = {
    "ok": ("allowed", "ok"),
    "warn": ("warn", "warnings"),
    "fail": ("denied", "failed"),
    "skip": ("skipped", "skipped"),
}
"""The role of each status of a doctor's line, and its word in the summary."""


class Line(msgspec.Struct, frozen=True):
    """A line of a report. A line that wraps continues at its own ``indent``."""

    spans: tuple[Span, ...] = ()
    indent: int = 0
    wraps: bool = True

    @property
    def text(self) -> str:
        return " " * self.indent + "".join([text for text, _ in self.spans])


def line(text: str, role: Role = "", *, indent: int = 0) -> Line:
    """Return a line in one role, with control characters written as escapes."""
    return Line(((printable(text), role),), indent)


def _columns(*spans: Span) -> tuple[Span, ...]:
    """Return spans with two blanks between them, and control characters written as escapes."""
    columns: list[Span] = []
    for text, role in spans:
        columns += [("  ", ""), (printable(text), role)]
    return tuple(columns[1:])


def check(report: CheckReport) -> Iterator[Line]:
    """Yield a verdict on each object, why, and what changes."""
    length = 0
    for result in report.results:
        if report.quiet and not result.findings and result.error is None:
            continue
        lines = _result_lines(result, quiet=report.quiet)
        length = len(lines)
        yield from lines
        if length > 1:
            yield Line()
    if report.quiet:
        return
    if length == 1:
        yield Line()
    spans: list[Span] = [(counted(len(report.results), "object"), "total"), *_counts(report)]
    if warnings := sum(f.action == "warn" for result in report.results for f in result.findings):
        spans += [("; ", ""), (counted(warnings, "warning"), "warn")]
    yield from _summary(spans, report.policy, report.results)


def audit(report: AuditReport) -> Iterator[Line]:
    """Yield the pools, the findings by severity, and what is not audited."""
    if not report.quiet:
        yield from _pools(report)
    results = sorted(report.results, key=by_severity)
    for result in results:
        if result.findings or result.error is not None:
            yield from _result_lines(result, quiet=True)
            yield Line()
    if report.quiet:
        return
    for remark in report.remarks:
        yield line(remark, "aside")
    for skipped in report.audit.skipped:
        yield Line((("not audited  ", "warn"), (printable(skipped), "")))
    objects = f"{counted(len(results), 'object')} with {counted(report.audit.pods, 'running Pod')}"
    yield from _summary([(objects, "total"), *_counts(report)], report.policy, results)


def suites(report: SuitesReport) -> Iterator[Line]:
    """Yield each case and a summary; ``-`` marks what is expected, ``+`` what there is."""
    for outcome in report.outcomes:
        yield from _outcome(outcome)
    yield Line()
    states = Counter(outcome.state for outcome in report.outcomes)
    total = f"{counted(states.total(), 'case')} in {counted(report.suites, 'suite')}"
    spans: list[Span] = [(total, "total")]
    for state, role in _STATE_ROLES.items():
        if states[state]:
            spans += [(": " if len(spans) == 1 else ", ", ""), (f"{states[state]} {state}", role)]
    yield Line(tuple(spans))
    if report.unexercised:
        names = ", ".join(report.unexercised)
        yield Line((("No case exercises ", "warn"), (f"{names}.", "")))


def doctor(report: DoctorReport) -> Iterator[Line]:
    """Yield a line for each check, with what to do below it, and a summary."""
    width = max((len(found.check) for found in report.lines), default=0)
    for found in report.lines:
        role, _ = _STATUSES[found.status]
        name = found.check.ljust(width)
        spans = _columns((found.status.ljust(4), role), (name, "object"), (found.detail, ""))
        yield Line(spans)
        if found.remediation:
            cure = printable(f"{found.remediation}.")
            yield Line((("→ ", "remediation"), (cure, "")), indent=8 + width)
    counts = Counter(found.status for found in report.lines)
    words = [(counts[status], word) for status, (_, word) in _STATUSES.items()]
    parts = [f"{count} {word}" for count, word in words if count]
    yield Line()
    yield Line(((", ".join(parts), "total"),))


def heading(result: Result) -> Iterator[Line]:
    """Yield the verdict, the object and its place; of a broken object, what is wrong with it."""
    document = result.manifest.document
    start = f"{document.path}:{result.manifest.line}" if document.text else document.path
    verdict = (result.verdict.ljust(_WIDTH), result.verdict)
    spans = [*_columns(verdict, (result.title, "object"), (start, "place"))]
    if tolerated := _tolerated(result):
        spans.append((f"  with {tolerated}", "warn"))
    yield Line((*spans, (printable(_remark(result)), "aside")))
    if result.error is not None:
        where, what = place(document, result.error), explanation(document, result.error)
        label: list[Span] = [] if result.verdict == "invalid" else [("invalid  ", "invalid")]
        spans = [*label, (printable(f"{where}: "), "place"), (printable(what), "")]
        yield Line(tuple(spans), indent=2)


def finding_lines(result: Result, finding: Finding, indent: int = 2) -> Iterator[Line]:
    """Yield one finding of an object: rule and place, what is wrong, and what to do."""
    action: Span = (finding.action, finding.action if finding.action != "off" else "")
    where = str(finding_place(result, finding))
    spans = _columns(action, (finding.rule, "rule"), (where, "place"), (finding.path, ""))
    yield Line(spans, indent)
    yield line(message(finding), indent=indent + 2)
    if text := remediation(finding):
        yield Line((("remediation: ", "remediation"), (printable(text), "")), indent + 2)


def unjudged_lines(decision: Decision) -> list[Line]:
    """Return a line for each part whose Pods are judged only when they are created."""
    named = decision.unjudged[:_MAX_UNJUDGED]
    texts = [f"not judged  {field_path(part.path)}: {part.reason}" for part in named]
    if more := len(decision.unjudged) - len(named):
        texts.append(f"not judged  {more} more")
    if texts:
        texts.append("The webhook judges these Pods when they are created.")
    return [line(text, "aside", indent=2) for text in texts]


def marked_line(marked: Marked, indent: int) -> Line:
    """Return a line of a difference as it is shown."""
    shown = "@@" if marked.mark == "@" else f"{marked.mark}{marked.text}"
    return Line(((printable(shown), _MARK_ROLES[marked.mark]),), indent=indent, wraps=False)


def _result_lines(result: Result, *, quiet: bool) -> list[Line]:
    """Return the lines about one object; quiet ones leave out exceptions and changes."""
    lines = [*heading(result)]
    for finding in result.findings:
        lines += finding_lines(result, finding)
    decision = result.decision
    if quiet or decision is None:
        return lines
    lines += unjudged_lines(decision)
    for finding in decision.excepted:
        text = f"excepted  {finding.rule}  {finding.reason} (at {finding.path})"
        lines.append(line(text, "aside", indent=2))
    if result.verdict in ("mutated", "unknown"):
        marked = difference(decision.original, decision.mutated)
        lines += [marked_line(each, indent=2) for each in marked]
    return lines


def _tolerated(result: Result) -> str:
    """Count the findings of an object that is not denied: ``2 warnings and 1 audit finding``."""
    if result.verdict == "denied":
        return ""
    actions = Counter(finding.action for finding in result.findings)
    counts = [(actions["warn"], "warning"), (actions["audit"], "audit finding")]
    return " and ".join(counted(count, noun) for count, noun in counts if count)


def _remark(result: Result) -> str:
    if result.note:
        return f"  {result.note}"
    if result.decision is None:
        return "" if result.kind or result.error else "  not a Kubernetes object"
    if result.decision.exemption:
        return f"  exempt: {result.decision.exemption}"
    if result.decision.pools:
        return f"  requests devices of pool {', '.join(result.decision.pools)}"
    if not result.decision.has_template and is_core_workload(result.decision.original):
        # An API server and the webhook reject such an object if it is not a patch.
        return "  has no pod template, as if it were a patch"
    return ""


def _counts(report: CheckReport) -> Sequence[Span]:
    return verdict_counts(Counter(result.verdict for result in report.results))


def _summary(spans: Sequence[Span], policy: str, results: Iterable[Result]) -> Iterator[Line]:
    """Yield the summary, and the commands that explain the rules that find something."""
    yield Line((*spans, (printable(f" (policy: {policy})"), "aside")))
    for rule in dict.fromkeys(finding.rule for result in results for finding in result.findings):
        if rule_page(rule):
            yield Line((("Explain the rule: ", "aside"), (f"gpufence explain {rule}", "")))


def _pools(report: AuditReport) -> Iterator[Line]:
    for state in report.audit.pools:
        trespassers = counted(state.trespassers, "trespasser")
        yield Line(
            (
                ("pool ", ""),
                (state.pool.name, "object"),
                (f"  {pool_summary(state)}; ", ""),
                (trespassers, "denied" if state.trespassers else "aside"),
            )
        )
        width = max(map(len, state.by_namespace), default=0)
        for namespace, usage in sorted(state.by_namespace.items()):
            counts = f"{usage.placed:>5} on nodes  {usage.waiting:>5} waiting"
            yield Line(((f"{namespace.ljust(width)}  {counts}", ""),), indent=2)
    if report.audit.pools:
        yield Line()


def _outcome(outcome: Outcome) -> Iterator[Line]:
    state = (f"{outcome.state:6}", _STATE_ROLES[outcome.state])
    where = f"{outcome.path}:{outcome.line}"
    yield Line(_columns(state, (outcome.name, "object"), (where, "place")))
    if outcome.error:
        yield line(outcome.error, indent=4)
    for failure in outcome.failures:
        yield line(f"{failure.message}.", indent=4)
        for shown in failure.lines:
            if isinstance(shown, Marked):
                yield marked_line(shown, indent=6)
            else:
                yield line(f"{shown}.", "aside", indent=6)
