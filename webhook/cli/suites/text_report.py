"""What came of suites, for people: every case that did not pass, and a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from webhook.cli.printable import printable
from webhook.cli.report.difference import Marked
from webhook.cli.report.lines import Line, Role
from webhook.cli.report.text import marked_line
from webhook.cli.suites.run import Outcome, State

_ROLES: dict[State, Role] = {"passed": "allowed", "failed": "denied", "error": "invalid"}


def report(outcomes: Iterable[Outcome], unexercised: Sequence[str]) -> Iterator[Line]:
    """Yield the report; of a difference, ``-`` marks what was expected, ``+`` what there is."""
    states: Counter[State] = Counter()
    suites = set()
    for outcome in outcomes:
        states[outcome.state] += 1
        suites.add(outcome.suite.document)
        yield from _outcome(outcome)
    yield Line()
    yield _summary(states, len(suites))
    if unexercised:
        names = ", ".join(unexercised)
        yield Line((("No case exercises ", "advice"), (f"{names}.", "")))


def _outcome(outcome: Outcome) -> Iterator[Line]:
    place = f"{outcome.suite.document.path}:{outcome.line}"
    yield Line(
        (
            (f"{outcome.state:6}", _ROLES[outcome.state]),
            ("  ", ""),
            (printable(outcome.case.name), "object"),
            ("  ", ""),
            (printable(place), "place"),
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


def _summary(states: Counter[State], suites: int) -> Line:
    count = states.total()
    total = f"{count} case{'s'[count == 1 :]} in {suites} suite{'s'[suites == 1 :]}"
    spans: list[tuple[str, Role]] = [(total, "total")]
    for state, role in _ROLES.items():
        if states[state]:
            spans += [(": " if len(spans) == 1 else ", ", ""), (f"{states[state]} {state}", role)]
    return Line(tuple(spans))
