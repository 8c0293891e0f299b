"""JUnit XML for CI systems: a test suite for each file of suites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from xml.etree import ElementTree as ET

from webhook.cli.report import junit
from webhook.cli.report.content import Failure, Outcome, SuitesReport
from webhook.cli.report.difference import Marked
from webhook.cli.report.junit import xml_text


def report(content: SuitesReport) -> Iterator[str]:
    """Yield the document."""
    root = ET.Element("testsuites", name="gpufence test")
    for path, group in groupby(content.outcomes, key=lambda outcome: outcome.path):
        outcomes = list(group)
        states = Counter(outcome.state for outcome in outcomes)
        suite = junit.suite_element(path, len(outcomes), states["failed"], states["error"])
        root.append(suite)
        for outcome in outcomes:
            _fill(junit.case_element(suite, xml_text(outcome.name)), outcome)
    ET.indent(root)
    yield f"{junit.HEAD}{ET.tostring(root, encoding='unicode')}\n"


def _fill(case: ET.Element, outcome: Outcome) -> None:
    if outcome.error:
        error = ET.SubElement(case, "error", type="error", message=xml_text(outcome.error))
        error.text = f"{xml_text(outcome.path)}:{outcome.line}"
    if outcome.failures:
        message = "; ".join(failure.message for failure in outcome.failures)
        failure = ET.SubElement(case, "failure", type="failed", message=xml_text(message))
        failure.text = "\n".join(line for failed in outcome.failures for line in _lines(failed))


def _lines(failure: Failure) -> list[str]:
    shown = [
        f"{line.mark}{line.text}" if isinstance(line, Marked) else line for line in failure.lines
    ]
    return [xml_text(line) for line in (failure.message, *shown)]
