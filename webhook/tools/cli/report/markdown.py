"""Markdown for a comment on a pull request: what the change of a policy does.

Text from policies and manifests has its Markdown escaped, or stands in code. Its author must not be
able to notify people, show a picture or set a link in a bot's comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from webhook.wording import counted, printable

if TYPE_CHECKING:
    from webhook.tools.cli.policy_diff.comparison import Comparison, Example

MOST_OF_DIFF = 60_000
"""The longest comment. GitHub accepts 65,536 characters, and a workflow may add to it."""

_RESERVED = 1_000
"""For the lines around the table."""

_LONGEST_CELL = 2_000

_MARKS = re.compile(r"[\\`*_{}\[\]<>()#+!|~&$-]")
# What GitHub turns into a link or a mention without any Markdown.
_LINKING = re.compile(r"@|#(?=\d)|\bgh-(?=\d)|:(?=//)|\bwww(?=\.)", re.IGNORECASE)


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
        if omitted := len(rows) - len(kept):
            why = f"because a comment holds {MOST_OF_DIFF:,} characters"
            yield f"\nOmitted: {counted(omitted, what)}, {why}.\n"
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


def _fitting(rows: Sequence[str], left: int) -> Sequence[str]:
    """Return the first rows that a comment can hold."""
    for count, row in enumerate(rows):
        left -= len(row)
        if left < 0:
            return rows[:count]
    return rows


def _escaped(text: str) -> str:
    """Return text with its Markdown escaped; zero width spaces prevent links."""
    return _MARKS.sub(r"\\\g<0>", _LINKING.sub("\\g<0>\u200b", _short(printable(text))))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}..."
