"""Markdown for a comment on a pull request: the findings as a table, the gravest first.

What manifests say stands in code spans or with its marks escaped: whoever writes a manifest must
not get to notify people, to show a picture or to set a link in the comment that a robot writes
about it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

from policies.finding import Finding
from webhook.cli.manifests.evaluate import Result, Verdict
from webhook.cli.manifests.sentence import explanation
from webhook.cli.printable import printable
from webhook.cli.report.places import Place, finding_place, object_place

MAX_CHARACTERS = 65_536
"""The longest comment that GitHub takes."""

_RESERVED = 1_000
"""For the lines around the table."""

_LONGEST_CELL = 2_000

Gravity = Literal["invalid", "enforce", "warn", "audit", "off"]
_ORDER: tuple[Gravity, ...] = ("invalid", "enforce", "warn", "audit", "off")
_SUMMARY_ORDER: tuple[Verdict, ...] = ("invalid", "denied", "mutated", "allowed", "skipped")
_MARKS = re.compile(r"[\\`*_{}\[\]<>()#+!|~&$-]")
# What becomes a link without any mark, and notifies whoever is named, or whose issue it is.
_LINKING = re.compile(r"@|#(?=\d)|\bgh-(?=\d)|:(?=//)|\bwww(?=\.)", re.IGNORECASE)


def report(results: Iterable[Result]) -> Iterator[str]:
    """Yield the comment, which is known when all results are."""
    verdicts: Counter[Verdict] = Counter()
    rows = _Rows()
    for result in results:
        verdicts[result.verdict] += 1
        if result.error is not None:
            text = explanation(result.manifest.document, result.error)
            rows.add("invalid", _row("invalid", result, object_place(result), "", text))
        for finding in result.decision.findings if result.decision else ():
            rows.add(finding.action, _finding_row(result, finding))
    yield f"### gpufence: {_summary(verdicts)}\n"
    kept, left_out = rows.fitting(MAX_CHARACTERS - _RESERVED)
    if kept:
        yield "\n| | Object | Rule | Where | What |\n| --- | --- | --- | --- | --- |\n"
        yield from kept
    if left_out:
        these = "one more is" if left_out == 1 else f"{left_out} more are"
        yield f"\n{these.capitalize()} left out: a comment holds {MAX_CHARACTERS:,} characters.\n"


class _Rows:
    """Rows by how grave they are, no more of each than could ever be shown."""

    def __init__(self) -> None:
        self._rows: dict[Gravity, list[str]] = {gravity: [] for gravity in _ORDER}
        self._lengths: Counter[Gravity] = Counter()
        self._count = 0

    def add(self, gravity: Gravity, row: str) -> None:
        self._count += 1
        if self._lengths[gravity] + len(row) <= MAX_CHARACTERS:
            self._lengths[gravity] += len(row)
            self._rows[gravity].append(row)

    def fitting(self, characters: int) -> tuple[list[str], int]:
        """Return the gravest rows that fit, and how many rows are left out."""
        kept: list[str] = []
        for row in (row for gravity in _ORDER for row in self._rows[gravity]):
            if len(row) > characters:
                break
            characters -= len(row)
            kept.append(row)
        return kept, self._count - len(kept)


def _finding_row(result: Result, finding: Finding) -> str:
    advice = f" {finding.advice}." if finding.advice else ""
    text = f"{finding.reason}: {finding.detail}.{advice}"
    return _row(finding.action, result, finding_place(result, finding), finding.rule, text)


def _row(gravity: Gravity, result: Result, place: Place, rule: str, text: str) -> str:
    name = "/".join(filter(None, (result.namespace, result.name)))
    where = f"{place.path}:{place.line}" if place.line else place.path
    cells = (
        gravity,
        _code(f"{result.kind} {name}".strip()),
        _code(rule),
        _code(where),
        _escaped(text),
    )
    return f"| {' | '.join(cells)} |\n"


def _summary(verdicts: Counter[Verdict]) -> str:
    count = verdicts.total()
    parts = [f"{verdicts[verdict]} {verdict}" for verdict in _SUMMARY_ORDER if verdicts[verdict]]
    return f"{count} object{'s'[count == 1 :]}" + (f": {', '.join(parts)}" if parts else "")


def _code(text: str) -> str:
    """Return text as a code span, but for the rare one in which a mark ends it, or the cell."""
    if not text:
        return ""
    return _escaped(text) if "`" in text or "|" in text else f"`{_short(printable(text))}`"


def _escaped(text: str) -> str:
    """Return text whose marks mean nothing; zero width spaces keep it from linking anywhere."""
    return _MARKS.sub(r"\\\g<0>", _LINKING.sub("\\g<0>\u200b", _short(printable(text))))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}..."
