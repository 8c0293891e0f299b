"""Markdown for a comment on a pull request: the findings as a table, the most severe first.

Text from manifests stands in code spans, or with its Markdown escaped. The author of a manifest
must not be able to notify people, show a picture or set a link in a bot's comment.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, get_args

from policies.wording import counted, printable
from webhook.tools.cli.evaluate import Result, Verdict
from webhook.tools.cli.policy_diff.comparison import Difference
from webhook.tools.cli.policy_diff.sentences import (
    DiffReport,
    causes,
    closing,
    sentence,
    smallest,
    written,
)
from webhook.tools.cli.report.content import (
    CheckReport,
    Place,
    finding_place,
    object_place,
    paragraph,
    summary,
    verdict_counts,
)
from webhook.tools.documents.document import explanation

MAX_CHARACTERS = 65_536
"""The longest comment that GitHub accepts."""

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
    if left_out := len(rows) - len(kept):
        more = counted(left_out, "more row")
        yield f"\nOmitted: {more}, because a comment holds {MAX_CHARACTERS:,} characters.\n"


audit = check


def diff(report: DiffReport) -> Iterator[str]:
    """Yield the comment: each difference, its smallest Pod folded, and the workloads."""
    yield f"### gpufence: {_escaped(report.old)} and {_escaped(report.new)}\n\n"
    left = MAX_CHARACTERS - _RESERVED * 4
    parts = [*map(_difference, report.comparison.differences)]
    parts += ["| Workload | Before | Now | Why |\n| --- | --- | --- | --- |\n"] * bool(
        report.workloads
    )
    for change in report.workloads:
        why = "; ".join(causes(change.rules))
        place = _code(f"{change.place} {change.title}")
        parts.append(f"| {place} | {change.before.verdict} | {change.after.verdict} | {why} |\n")
    for number, part in enumerate(parts):
        left -= len(part)
        if left < 0:
            yield f"\nOmitted: {len(parts) - number} more, because a comment has a limit.\n"
            break
        yield part
    yield from (f"\n{_escaped(each)}.\n" for each in closing(report))


def _difference(difference: Difference) -> str:
    why = "".join(f"- {each}.\n" for each in causes(difference.rules))
    changed = _fenced("diff", "".join(f"{x}\n" for x in written(difference)))
    example = _fenced("yaml", smallest(difference))
    folded = f"<details><summary>The smallest Pod</summary>\n\n{example}\n</details>\n\n"
    return f"**{_escaped(sentence(difference))}**\n\n{why}\n{changed}{folded}"


def _fenced(language: str, text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}{fence}\n\n" if text else ""


def _fitting(rows: Sequence[str]) -> Sequence[str]:
    """Return the first rows that a comment can hold."""
    left = MAX_CHARACTERS - _RESERVED
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
