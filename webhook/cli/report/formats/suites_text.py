"""The report for people: every case that does not pass, and a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from webhook.cli.report.content import Outcome, State, SuitesReport
from webhook.cli.report.difference import Marked
from webhook.cli.report.lines import Line, Role, Span
from webhook.cli.report.result_lines import marked_line
from webhook.wording import counted, printable

_ROLES: dict[State, Role] = {"passed": "allowed", "failed": "denied", "error": "invalid"}


def report(content: SuitesReport) -> Iterator[Line]:
    """Yield the report; in a difference, ``-`` marks what is expected, ``+`` what there is."""
    for outcome in content.outcomes:
        yield from _outcome(outcome)
    yield Line()
    yield _summary(content)
    if content.unexercised:
        names = ", ".join(content.unexercised)
        yield Line((("No case exercises ", "warn"), (f"{names}.", "")))


def _outcome(outcome: Outcome) -> Iterator[Line]:
    yield Line(
        (
            (f"{outcome.state:6}", _ROLES[outcome.state]),
            ("  ", ""),
            (printable(outcome.name), "object"),
            ("  ", ""),
            (printable(f"{outcome.path}:{outcome.line}"), "place"),
        )
    )
    if outcome.error:
        yield Line(((printable(outcome.error), ""),), indent=4)
    for failure in outcome.failures:
        yield Line(((printable(f"{failure.message}."), ""),), indent=4)
        for line in failure.lines:
            if isinstance(line, Marked):
                yield marked_line(line, indent=6)
            else:
                yield Line(((printable(f"{line}."), "aside"),), indent=6)


def _summary(content: SuitesReport) -> Line:
    states = Counter(outcome.state for outcome in content.outcomes)
    total = f"{counted(states.total(), 'case')} in {counted(content.suites, 'suite')}"
    spans: list[Span] = [(total, "total")]
    for state, role in _ROLES.items():
        if states[state]:
            spans += [(": " if len(spans) == 1 else ", ", ""), (f"{states[state]} {state}", role)]
    return Line(tuple(spans))
