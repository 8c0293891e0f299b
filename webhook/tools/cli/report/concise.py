"""One line for each finding, as editors and pipes read it: ``FILE:LINE:COLUMN: what``."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.documents.document import explanation
from webhook.tools.cli.report.content import (
    CheckReport,
    Place,
    finding_place,
    message,
    object_place,
)
from webhook.wording import printable


def check(report: CheckReport) -> Iterator[str]:
    """Yield the line of each error and of each finding."""
    for result in report.results:
        if result.error is not None:
            text = explanation(result.manifest.document, result.error)
            yield _line(object_place(result), f"invalid {text}")
        for finding in result.findings:
            text = f"{finding.action} {finding.rule} {result.title}: {message(finding)}"
            yield _line(finding_place(result, finding), text)


def _line(place: Place, text: str) -> str:
    numbers = "".join(f":{number}" for number in (place.line, place.column) if number)
    return f"{printable(f'{place.path}{numbers}: {text}')}\n"
