"""The report for programs: one DoctorReport."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from webhook.cli.report.content import DoctorReport, json_document
from webhook.doctor.line import STATUSES


def report(content: DoctorReport) -> Iterator[str]:
    """Yield the report as JSON."""
    counts = Counter(line.status for line in content.lines)
    lines = [
        {
            "status": line.status,
            "check": line.check,
            "detail": line.detail,
            "remediation": line.remediation,
        }
        for line in content.lines
    ]
    summary = {status: counts[status] for status in STATUSES}
    yield json_document("DoctorReport", summary=summary, lines=lines)
