"""The report for people: a line for each check, with what to do below it, and a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from webhook.cli.report.content import DoctorReport
from webhook.cli.report.lines import Line, Role
from webhook.doctor.line import STATUSES, Status
from webhook.wording import printable

_ROLES: dict[Status, Role] = {
    "ok": "allowed",
    "warn": "warn",
    "fail": "denied",
    "skip": "skipped",
}
_WORDS: dict[Status, str] = {"ok": "ok", "warn": "warnings", "fail": "failed", "skip": "skipped"}


def report(content: DoctorReport) -> Iterator[Line]:
    """Yield the report."""
    width = max((len(line.check) for line in content.lines), default=0)
    for line in content.lines:
        yield Line(
            (
                (line.status.ljust(4), _ROLES[line.status]),
                ("  ", ""),
                (line.check.ljust(width), "object"),
                ("  ", ""),
                (printable(line.detail), ""),
            )
        )
        if line.remediation:
            yield Line(
                (("→ ", "remediation"), (printable(f"{line.remediation}."), "")), indent=8 + width
            )
    counts = Counter(line.status for line in content.lines)
    parts = [f"{counts[status]} {_WORDS[status]}" for status in STATUSES if counts[status]]
    yield Line()
    yield Line(((", ".join(parts), "total"),))
