"""The formats of reports by name, each a module that is imported when it is asked for.

A format's module has ``report``, from results to the report's text, piece by piece; that of the
text for people gives lines instead, which a terminal colours and wraps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from webhook.cli.manifests.evaluate import Result

TEXT = "text"

FORMATS: dict[str, str] = {
    TEXT: "webhook.cli.report.text",
    "json": "webhook.cli.report.json",
    "sarif": "webhook.cli.report.sarif",
    "junit": "webhook.cli.report.junit",
    "github": "webhook.cli.report.github",
    "markdown": "webhook.cli.report.markdown",
    "html": "webhook.cli.report.html",
}


def report(name: str, results: Iterable[Result]) -> Iterator[str]:
    """Return a report in one of the formats that are not ``text``."""
    pieces: Iterator[str] = import_module(FORMATS[name]).report(results)
    return pieces
