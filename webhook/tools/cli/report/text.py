"""The reports for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from textwrap import indent
from typing import TYPE_CHECKING

from policies.decision import Decision
from policies.finding import Finding
from policies.kubernetes.paths import field_path
from policies.kubernetes.templates import is_core_workload
from webhook.documents.document import explanation, place
from webhook.tools.cli.evaluate import Result
from webhook.tools.cli.report.content import (
    AuditReport,
    CheckReport,
    Outcome,
    State,
    SuitesReport,
    by_severity,
    finding_place,
    message,
    pool_summary,
    remediation,
    rule_page,
    summary,
    usages,
    waste_sentences,
)
from webhook.tools.cli.report.output import BOLD, DIM, PLAIN, STYLES, YELLOW, Style, Terminal
from webhook.tools.cli.yaml_writer import Marked, difference
from webhook.wording import counted

if TYPE_CHECKING:
    from webhook.tools.cli.policy_diff.comparison import Comparison
    from webhook.tools.doctor import DoctorLine, Status

_WIDTH = len("allowed")
_MAX_UNJUDGED = 3
"""The parts of an object that are listed; the JSON report lists all of them."""

_MOST_WASTE = 5
_MOST_LINES, _MOST_CHANGES, _MOST_CHARACTERS = 8, 4, 600
"""The lines of a section about policies, those of an example, and the longest line."""

_STATES: dict[State, Style] = {
    "passed": STYLES["allowed"],
    "failed": STYLES["denied"],
    "error": STYLES["invalid"],
}
_STATUSES: dict[Status, tuple[Style, str]] = {
    "ok": (STYLES["allowed"], "ok"),
    "warn": (YELLOW, "warnings"),
    "fail": (STYLES["denied"], "failed"),
    "unknown": (YELLOW, "unknown"),
    "skip": (STYLES["skipped"], "skipped"),
}
"""The style of each status of a doctor's line, and its word in the summary."""


def check(report: CheckReport, terminal: Terminal) -> Iterator[str]:
    """Yield a verdict on each object that needs attention, why, what changes, and a summary."""
    needs_blank = False
    for result in report.results:
        if not (report.verbose or _needs_attention(result, quiet=report.quiet)):
            continue
        text = _object(terminal, result, quiet=report.quiet)
        needs_blank = text.count("\n") == 1
        yield text if needs_blank else f"{text}\n"
    if not report.quiet:
        yield "\n" if needs_blank else ""
        yield _summary(terminal, report, report.results)


def audit(report: AuditReport, terminal: Terminal) -> Iterator[str]:
    """Yield the pools, the findings by severity, and what is not audited."""
    if not report.quiet:
        yield from _pools(report, terminal)
        waste = list(islice(waste_sentences(report.waste), _MOST_WASTE))
        yield from (terminal.line(each, label=f"waste in {report.hours:g} h  ") for each in waste)
        yield "\n" if waste else ""
        for title, lines in report.lists:
            yield from (terminal.line(each, label=f"{title.lower()}  ") for each in lines)
            yield "\n" if lines else ""
    results = sorted(report.results, key=by_severity)
    for result in results:
        if result.findings or result.error is not None:
            yield f"{_object(terminal, result, quiet=True)}\n"
    if report.quiet:
        return
    for remark in report.remarks:
        yield terminal.line(remark, style=DIM)
    for skipped in report.audit.skipped:
        yield terminal.row(("not audited", YELLOW), (skipped, PLAIN))
    pods = f" with {counted(report.audit.pods, 'running Pod')}"
    yield _summary(terminal, report, results, pods)


def suites(report: SuitesReport, terminal: Terminal) -> Iterator[str]:
    """Yield each case and a summary; ``-`` marks what is expected, ``+`` what there is."""
    for outcome in report.outcomes:
        yield from _outcome(terminal, outcome)
    states = Counter(outcome.state for outcome in report.outcomes)
    total = f"{counted(states.total(), 'case')} in {counted(report.suites, 'suite')}"
    counts = [
        terminal.paint(f"{states[state]} {state}", style)
        for state, style in _STATES.items()
        if states[state]
    ]
    yield f"\n{summary(terminal.paint(total, BOLD), counts)}\n"


def doctor(lines: Sequence[DoctorLine], terminal: Terminal) -> Iterator[str]:
    """Yield a line for each check, with what to do below it, and a summary."""
    width = max((len(found.check) for found in lines), default=0)
    longest = max((len(found.status) for found in lines), default=0)
    for found in lines:
        style, _ = _STATUSES[found.status]
        name = found.check.ljust(width)
        yield terminal.row(
            (found.status.ljust(longest), style), (name, BOLD), (found.detail, PLAIN)
        )
        if found.remediation:
            yield terminal.line(f"{found.remediation}.", 4 + longest + width, label="→ ")
    counts = Counter(found.status for found in lines)
    words = [(counts[status], word) for status, (_, word) in _STATUSES.items()]
    parts = ", ".join(
        f"{count} {word if count > 1 else word.removesuffix('s')}" for count, word in words if count
    )
    yield f"\n{terminal.paint(parts, BOLD)}\n"


def diff(report: Comparison, terminal: Terminal) -> Iterator[str]:
    """Yield the changed fields, a line for each consequence, and the smallest examples."""

    def lines(texts: Sequence[str], most: int, indent: int) -> Iterator[str]:
        shown = texts if report.is_verbose else [_short(text) for text in texts[:most]]
        yield from (terminal.line(text, indent) for text in shown)
        if rest := len(texts) - len(shown):
            yield terminal.line(f"and {rest:,} more: see --verbose", indent)

    for title, texts in (
        ("Changed fields:", [*map(str, report.fields)]),
        ("What follows:", [f"{each}." for each in report.consequences]),
    ):
        if texts:
            yield terminal.line(title, style=BOLD)
            yield from lines(texts, _MOST_LINES, 2)
            yield "\n"
    if report.examples:
        yield terminal.line("Examples:", style=BOLD)
    for each in report.shown_examples:
        yield terminal.line(f"{each}", 2)
        yield from lines(each.changes, _MOST_CHANGES, 4)
        if report.is_verbose and each.objects:
            yield f"\n{indent(each.yaml, '    ')}\n"
    yield "\n" * bool(report.examples)
    yield from lines([f"{note}." for note in report.notes], _MOST_LINES, 0)


def _short(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


# The parts of a report about one object.


def heading(terminal: Terminal, result: Result) -> str:
    """Return the verdict, the object and its place; of a broken object, what is wrong with it."""
    document, paint = result.manifest.document, terminal.paint
    start = f"{document.path}:{result.manifest.line}" if document.text else document.path
    verdict = paint(result.verdict.ljust(_WIDTH), STYLES[result.verdict])
    text = f"{verdict}  {paint(result.title, BOLD)}  {paint(start, DIM)}"
    if tolerated := _tolerated(result):
        text += paint(f"  with {tolerated}", YELLOW)
    text += f"{paint(_remark(result), DIM)}\n"
    if result.error is not None:
        where, what = place(document, result.error), explanation(document, result.error)
        label = "" if result.verdict == "invalid" else "invalid  "
        text += terminal.line(f"{label}{where}: {what}", 2)
    return text


def finding_text(terminal: Terminal, result: Result, finding: Finding, indent: int = 2) -> str:
    """Return one finding of an object: rule and place, what is wrong, and what to do."""
    where = str(finding_place(result, finding))
    cells = ((finding.action, STYLES[finding.action]), (finding.rule, BOLD), (where, DIM))
    text = terminal.row(*cells, (finding.path, PLAIN), indent=indent)
    text += terminal.line(message(finding), indent + 2)
    if cure := remediation(finding):
        text += terminal.line(cure, indent + 2, label="remediation: ")
    return text


def unjudged_text(terminal: Terminal, decision: Decision) -> str:
    """Return a line for each part whose Pods are judged only when they are created."""
    named = decision.unjudged[:_MAX_UNJUDGED]
    texts = [f"unknown  {field_path(part.path)}: {part.reason}" for part in named]
    if more := len(decision.unjudged) - len(named):
        texts.append(f"unknown  {more} more")
    if texts:
        texts.append("The webhook judges these Pods when they are created.")
    return "".join(terminal.line(text, 2, DIM) for text in texts)


def _needs_attention(result: Result, *, quiet: bool) -> bool:
    """Return whether a report shows an object that not every report shows."""
    if result.findings or result.error is not None:
        return True
    # What is skipped with a remark may be a mistake.
    is_plain = result.verdict == "allowed" or (result.verdict == "skipped" and not _remark(result))
    return not (quiet or (is_plain and result.decision.is_silent))


def _summary(
    terminal: Terminal, report: CheckReport, results: Sequence[Result], pods: str = ""
) -> str:
    """Return the last lines of a report: counts, the commands that explain the rules, and help."""
    paint = terminal.paint
    verdicts = Counter[str](result.verdict for result in results if result.is_object)
    findings = [finding for result in results for finding in result.findings]
    counts = (paint(f"{n:,} {v}", style) for v, style in STYLES.items() if (n := verdicts[v]))
    text = summary(paint(f"{counted(verdicts.total(), 'object')}{pods}", BOLD), counts)
    warnings = sum(finding.action == "warn" for finding in findings)
    if warnings and not pods:
        text += f"; {paint(counted(warnings, 'warning'), YELLOW)}"
    if unreadable := len(results) - verdicts.total():
        files = f"{counted(unreadable, 'file')} that cannot be read"
        text += f"; {paint(files, STYLES['invalid'])}"
    text += f"{paint(f' (policy: {report.policy})', DIM)}\n"
    for rule in filter(rule_page, dict.fromkeys(finding.rule for finding in findings)):
        text += f"{paint('Explain the rule: ', DIM)}gpufence explain {rule}\n"
    if report.help and verdicts["denied"]:
        text += terminal.line(report.help)
    return text


def _object(terminal: Terminal, result: Result, *, quiet: bool) -> str:
    """Return the lines about one object; quiet ones leave out exceptions and changes."""
    text = heading(terminal, result)
    for finding in result.findings:
        text += finding_text(terminal, result, finding)
    decision = result.decision
    if quiet:
        return text
    text += unjudged_text(terminal, decision)
    for finding in decision.excepted:
        words = f"excepted  {finding.rule}  {finding.reason} (at {finding.path})"
        text += terminal.line(words, 2, DIM)
    if result.verdict in ("mutated", "unknown"):
        text += terminal.changed(difference(decision.original, decision.mutated), 2)
    return text


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
    if not result.kind and result.error is None:
        return "  not a Kubernetes object"
    if result.decision.exemption:
        return f"  exempt: {result.decision.exemption}"
    if result.decision.pools:
        return f"  requests devices of pool {', '.join(result.decision.pools)}"
    if not result.decision.has_template and is_core_workload(result.decision.original):
        # An API server and the webhook reject such an object if it is not a patch.
        return "  has no pod template, as if it were a patch"
    return ""


def _pools(report: AuditReport, terminal: Terminal) -> Iterator[str]:
    for state in report.audit.pools:
        trespassers = counted(state.trespassers, "trespasser")
        style = STYLES["denied"] if state.trespassers else DIM
        name = terminal.paint(state.pool.name, BOLD)
        yield f"pool {name}  {pool_summary(state)}; {terminal.paint(trespassers, style)}\n"
        for row in usages(report.waste, state.pool.name):
            yield f"  {row.namespace}  {row.kind}: {row.devices:,} {row.resource}\n"
    if report.audit.pools:
        yield "\n"


def _outcome(terminal: Terminal, outcome: Outcome) -> Iterator[str]:
    state = (f"{outcome.state:6}", _STATES[outcome.state])
    yield terminal.row(state, (outcome.name, BOLD), (f"{outcome.path}:{outcome.line}", DIM))
    if outcome.error:
        yield terminal.line(outcome.error, 4)
    for failure in outcome.failures:
        yield terminal.line(f"{failure.message}.", 4)
        for line in failure.lines:
            if isinstance(line, Marked):
                yield terminal.changed([line], 6)
            else:
                yield terminal.line(f"{line}.", 6, DIM)
