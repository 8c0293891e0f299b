"""JUnit XML for CI systems, as ``junit-10.xsd`` of Jenkins' xUnit plugin describes it.

A test suite stands for a file, and a test case for an object, or for a case of ``gpufence test``. A
denied object is a failure. Warnings are the output of their test case, which passes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from xml.etree import ElementTree as ET

from policies.finding import Finding
from webhook.documents.document import explanation, place
from webhook.tools.cli.evaluate import Result
from webhook.tools.cli.report.content import (
    CheckReport,
    Failure,
    Outcome,
    SuitesReport,
    finding_place,
    message,
    remediation,
)
from webhook.tools.cli.yaml_writer import Marked
from webhook.wording import printable

_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'
_SKIPPED = {
    "skipped": "has no pod template",
    "unknown": "its Pods are judged when they are created",
}
# Characters that XML 1.0 cannot hold, even as a reference, and that ``printable`` leaves.
_NO_CHARACTER = re.compile("[\ud800-\udfff\ufffe\uffff]")


def check(report: CheckReport) -> Iterator[str]:
    """Yield the document of a check."""
    root = ET.Element("testsuites", name="gpufence")
    for path, results in groupby(report.results, key=lambda r: r.manifest.document.path):
        suite = ET.SubElement(root, "testsuite", name=_xml_text(path))
        names: Counter[str] = Counter()
        for result in results:
            name = _xml_text(result.title)
            names[name] += 1
            # Names stay the same from run to run: of equal names, later ones are numbered.
            shown = name if names[name] == 1 else f"{name} ({names[name]})"
            _add_result(_case_element(suite, shown), result)
        _finish(suite)
    yield _document(root)


def suites(report: SuitesReport) -> Iterator[str]:
    """Yield the document of all test suites."""
    root = ET.Element("testsuites", name="gpufence test")
    for path, group in groupby(report.outcomes, key=lambda outcome: outcome.path):
        suite = ET.SubElement(root, "testsuite", name=_xml_text(path))
        for outcome in group:
            _add_outcome(_case_element(suite, _xml_text(outcome.name)), outcome)
        _finish(suite)
    yield _document(root)


def _add_result(case: ET.Element, result: Result) -> None:
    if result.error is not None:
        document = result.manifest.document
        what = _xml_text(explanation(document, result.error))
        error = ET.SubElement(case, "error", type="invalid", message=what)
        error.text = f"{_xml_text(place(document, result.error))}: {what}"
    if result.verdict in _SKIPPED:
        ET.SubElement(case, "skipped", message=result.note or _SKIPPED[result.verdict])
    enforced = [finding for finding in result.findings if finding.action == "enforce"]
    if enforced:
        rules = ", ".join(dict.fromkeys(finding.rule for finding in enforced))
        failure = ET.SubElement(case, "failure", type="denied", message=rules)
        failure.text = _listing(result, enforced)
    if others := [finding for finding in result.findings if finding.action != "enforce"]:
        ET.SubElement(case, "system-out").text = _listing(result, others)


def _listing(result: Result, findings: Iterable[Finding]) -> str:
    """Return the findings as text, a paragraph each."""
    paragraphs = []
    for finding in findings:
        where = finding_place(result, finding)
        lines = [
            f"{finding.action} {finding.rule} {where.path}:{where.line}:{where.column}",
            f"{finding.path}: {message(finding)}",
        ]
        if text := remediation(finding):
            lines.append(f"remediation: {text}")
        paragraphs.append("\n".join(map(_xml_text, lines)))
    return "\n\n".join(paragraphs)


def _add_outcome(case: ET.Element, outcome: Outcome) -> None:
    if outcome.error:
        error = ET.SubElement(case, "error", type="error", message=_xml_text(outcome.error))
        error.text = f"{_xml_text(outcome.path)}:{outcome.line}"
    if outcome.failures:
        summary = "; ".join(failure.message for failure in outcome.failures)
        failure = ET.SubElement(case, "failure", type="failed", message=_xml_text(summary))
        failure.text = "\n".join(line for failed in outcome.failures for line in _lines(failed))


def _lines(failure: Failure) -> list[str]:
    shown = [
        f"{line.mark}{line.text}" if isinstance(line, Marked) else line for line in failure.lines
    ]
    return [_xml_text(line) for line in (failure.message, *shown)]


def _document(root: ET.Element) -> str:
    ET.indent(root)
    return f"{_DECLARATION}{ET.tostring(root, encoding='unicode')}\n"


def _finish(suite: ET.Element) -> None:
    """Set the counts of a suite."""
    suite.set("tests", str(len(suite)))
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(len(suite.findall(f"*/{tag}"))))


def _case_element(suite: ET.Element, name: str) -> ET.Element:
    """Add a test case to a suite; ``name`` is XML text already."""
    return ET.SubElement(suite, "testcase", name=name, classname=suite.get("name", ""))


def _xml_text(text: str) -> str:
    """Return one line of text, with what XML or a terminal cannot take written as an escape."""
    return _NO_CHARACTER.sub(lambda match: ascii(match[0])[1:-1], printable(text))
