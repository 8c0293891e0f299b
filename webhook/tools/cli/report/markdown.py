"""Markdown for a comment on a pull request: the findings as a table, the most severe first.

Text from manifests stands in code spans, or with its Markdown escaped. The author of a manifest
must not be able to notify people, show a picture or set a link in a bot's comment.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, get_args

from webhook.documents.document import explanation
from webhook.tools.cli.evaluate import Result, Verdict
from webhook.tools.cli.report.content import (
    CheckReport,
    Place,
    finding_place,
    object_place,
    paragraph,
    summary,
    verdict_counts,
)
from webhook.wording import counted, printable

# A check needs none of it.
if TYPE_CHECKING:
    from webhook.tools.cli.policy_diff.comparison import Comparison, Example

MAX_CHARACTERS = 65_536
"""The longest comment that GitHub accepts."""

MOST_OF_DIFF = 60_000
"""The longest comment about a change of a policy: a workflow may add to it."""

_RESERVED = 1_000
"""For the lines around the table."""

_LONGEST_CELL = 2_000

Severity = Literal["invalid", "enforce", "warn", "audit", "off"]
_ORDER: tuple[Severity, ...] = get_args(Severity)
_MARKS = re.compile(r"[\\`*_{}\[\]<>()#+!|~&$-]")
# What GitHub turns into a link or a mention without any Markdown.
_LINKING = re.compile(r"@|#(?=\d)|\bgh-(?=\d)|:(?=//)|\bwww(?=\.)", re.IGNORECASE)


def check(report: CheckReport) -> Iterator[str]:
    """Yield the comment."""
    verdicts: Counter[Verdict] = Counter()
    rows: list[tuple[Severity, str]] = []
    for result in report.results:
        verdicts[result.verdict] += result.is_object
        rows += _rows(result)
    objects = counted(verdicts.total(), "object")
    yield f"### gpufence: {summary(objects, verdict_counts(verdicts).values())}\n"
    rows.sort(key=lambda row: _ORDER.index(row[0]))
    kept = _fitting([row for _, row in rows])
    if kept:
        yield "\n| | Object | Rule | Where | What |\n| --- | --- | --- | --- | --- |\n"
        yield from kept
    yield _omitted(len(rows) - len(kept), "more row")
    if report.help and verdicts["denied"]:
        yield f"\n{_escaped(report.help)}\n"


def _omitted(number: int, what: str, most: int = MAX_CHARACTERS) -> str:
    why = f"because a comment holds {most:,} characters"
    return f"\nOmitted: {counted(number, what)}, {why}.\n" if number else ""


def diff(report: Comparison) -> Iterator[str]:
    """Yield a comment: the changed fields, what follows, the examples folded, and the notes."""
    notes = [f"\n{_escaped(note)}.\n" for note in report.notes]
    left = MOST_OF_DIFF - _RESERVED - sum(map(len, notes))
    yield "### What the change of the policy does\n"
    for title, what, rows in (
        ("Changed fields", "changed field", [f"- {_escaped(str(f))}\n" for f in report.fields]),
        ("What follows", "consequence", [f"- {_escaped(str(c))}.\n" for c in report.consequences]),
        ("Examples", "example", [*map(_example, report.shown_examples)]),
    ):
        kept = _fitting(rows, left)
        left -= sum(map(len, kept))
        yield f"\n**{title}**\n\n" if kept else ""
        yield from kept
        yield _omitted(len(rows) - len(kept), what, MOST_OF_DIFF)
    yield from notes


def _example(example: Example) -> str:
    changes = _fenced("diff", "".join(f"{_short(printable(each))}\n" for each in example.changes))
    pod = _fenced("yaml", example.yaml) if example.objects else ""
    return f"<details><summary>{_escaped(str(example))}</summary>\n\n{changes}{pod}</details>\n"


def _fenced(language: str, text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}{fence}\n\n" if text else ""


def _fitting(rows: Sequence[str], left: int = MAX_CHARACTERS - _RESERVED) -> Sequence[str]:
    """Return the first rows that a comment can hold."""
    for count, row in enumerate(rows):
        left -= len(row)
        if left < 0:
            return rows[:count]
    return rows


def _rows(result: Result) -> Iterator[tuple[Severity, str]]:
    """Yield a row for each finding and for an error, with its severity."""
    if result.error is not None:
        text = explanation(result.manifest.document, result.error)
        yield "invalid", _row("invalid", result, object_place(result), "", text)
    for finding in result.findings:
        place = finding_place(result, finding)
        yield finding.action, _row(finding.action, result, place, finding.rule, paragraph(finding))


def _row(severity: Severity, result: Result, place: Place, rule: str, text: str) -> str:
    cells = (
        severity,
        _code(result.title),
        _code(rule),
        _code(str(place)),
        _escaped(text),
    )
    return f"| {' | '.join(cells)} |\n"


def _code(text: str) -> str:
    """Return text as a code span, or escaped if it has a mark that ends the span or the cell."""
    if not text:
        return ""
    return _escaped(text) if "`" in text or "|" in text else f"`{_short(printable(text))}`"


def _escaped(text: str) -> str:
    """Return text with its Markdown escaped; zero width spaces prevent links."""
    return _MARKS.sub(r"\\\g<0>", _LINKING.sub("\\g<0>\u200b", _short(printable(text))))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}..."
