"""Lines about one object: its verdict, what is wrong with it, and what changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from policies.decision import Decision
from policies.finding import Finding
from policies.kubernetes.template import field_path
from policies.kubernetes.templates import is_core_workload
from webhook.cli.manifests.evaluate import Result
from webhook.cli.report.findings import message, remediation
from webhook.cli.report.lines import Line, Role, Span
from webhook.cli.report.places import finding_place
from webhook.documents.documents import explanation, place
from webhook.wording import counted, printable

# What writes YAML is needed where something changes, and takes longer to import than to check.
if TYPE_CHECKING:
    from webhook.cli.report.difference import Mark, Marked

_WIDTH = len("allowed")
_MAX_UNJUDGED = 3
"""The parts of an object that are listed; the JSON report lists all of them."""
_MARK_ROLES: dict[Mark, Role] = {" ": "", "+": "added", "-": "removed", "@": "aside"}


def heading(result: Result) -> Iterator[Line]:
    """Yield the verdict, the object and its place; of a broken object, what is wrong with it."""
    document = result.manifest.document
    start = f"{document.path}:{result.manifest.line}" if document.text else document.path
    spans: list[Span] = [
        (result.verdict.ljust(_WIDTH), result.verdict),
        ("  ", ""),
        (printable(result.title), "object"),
        ("  ", ""),
        (printable(start), "place"),
    ]
    if tolerated := _tolerated(result):
        spans.append((f"  with {tolerated}", "warn"))
    yield Line((*spans, (printable(_remark(result)), "aside")))
    if result.error is not None:
        where, what = place(document, result.error), explanation(document, result.error)
        label: list[Span] = [] if result.verdict == "invalid" else [("invalid  ", "invalid")]
        spans = [*label, (printable(f"{where}: "), "place"), (printable(what), "")]
        yield Line(tuple(spans), indent=2)


def finding_lines(result: Result, finding: Finding) -> Iterator[Line]:
    """Yield one finding of an object: rule and place, what is wrong, and what to do."""
    place = finding_place(result, finding)
    yield Line(
        (
            (finding.action, finding.action if finding.action != "off" else ""),
            ("  ", ""),
            (finding.rule, "rule"),
            ("  ", ""),
            (printable(f"{place.path}:{place.line}" if place.line else place.path), "place"),
            ("  ", ""),
            (printable(finding.path), ""),
        ),
        indent=2,
    )
    yield Line(((printable(message(finding)), ""),), indent=4)
    if text := remediation(finding):
        yield Line((("remediation: ", "remediation"), (printable(text), "")), indent=4)


def excepted_line(finding: Finding) -> Line:
    """Return the line about a finding that an exception covers."""
    text = f"excepted  {finding.rule}  {finding.reason} (at {finding.path})"
    return Line(((printable(text), "aside"),), indent=2)


def unjudged_lines(decision: Decision) -> list[Line]:
    """Return a line for each part whose Pods are judged only when they are created."""
    named = decision.unjudged[:_MAX_UNJUDGED]
    texts = [f"not judged  {field_path(part.path)}: {part.reason}" for part in named]
    if more := len(decision.unjudged) - len(named):
        texts.append(f"not judged  {more} more")
    if texts:
        texts.append("The webhook judges these Pods when they are created.")
    return [Line(((printable(text), "aside"),), indent=2) for text in texts]


def change_lines(decision: Decision) -> list[Line]:
    """Return the change of an object as YAML."""
    from webhook.cli.report.difference import difference

    marked = difference(decision.original, decision.mutated)
    return [marked_line(line, indent=2) for line in marked]


def marked_line(marked: Marked, indent: int) -> Line:
    """Return a line of a difference as it is shown."""
    shown = "@@" if marked.mark == "@" else f"{marked.mark}{marked.text}"
    return Line(((printable(shown), _MARK_ROLES[marked.mark]),), indent=indent, wraps=False)


def _tolerated(result: Result) -> str:
    """Count the findings of an object that is not denied: ``2 warnings and 1 audit finding``."""
    if result.decision is None or result.verdict == "denied":
        return ""
    actions = Counter(finding.action for finding in result.decision.findings)
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
