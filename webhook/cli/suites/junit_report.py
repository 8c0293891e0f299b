"""What came of suites as JUnit XML, of the same kind as ``webhook.cli.report.junit``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from xml.etree import ElementTree as ET

from webhook.cli.report.difference import Marked
from webhook.cli.report.junit import xml_text
from webhook.cli.suites.run import Failure, Outcome


def report(outcomes: Iterable[Outcome]) -> str:
    """Return the document: a test suite for each file of suites."""
    root = ET.Element("testsuites", name="gpufence test")
    for path, group in groupby(outcomes, key=lambda outcome: outcome.suite.document.path):
        cases = list(group)
        states = Counter(outcome.state for outcome in cases)
        suite = ET.SubElement(
            root,
            "testsuite",
            name=xml_text(path),
            tests=str(len(cases)),
            failures=str(states["failed"]),
            errors=str(states["error"]),
            skipped="0",
        )
        for outcome in cases:
            _fill(
                ET.SubElement(
                    suite, "testcase", name=xml_text(outcome.case.name), classname=xml_text(path)
                ),
                outcome,
            )
    ET.indent(root)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return f"{head}{ET.tostring(root, encoding='unicode')}\n"


def _fill(case: ET.Element, outcome: Outcome) -> None:
    if outcome.error:
        error = ET.SubElement(case, "error", type="error", message=xml_text(outcome.error))
        error.text = f"{xml_text(outcome.suite.document.path)}:{outcome.line}"
    if outcome.failures:
        message = "; ".join(failure.message for failure in outcome.failures)
        failure = ET.SubElement(case, "failure", type="failed", message=xml_text(message))
        failure.text = "\n".join(line for each in outcome.failures for line in _lines(each))


def _lines(failure: Failure) -> list[str]:
    shown = [
        f"{line.mark}{line.text}" if isinstance(line, Marked) else line for line in failure.lines
    ]
    return [xml_text(line) for line in (failure.message, *shown)]
