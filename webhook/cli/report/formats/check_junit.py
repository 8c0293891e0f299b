"""JUnit XML for CI systems: a suite for each file, a test case for each object.

A denied object is a failure. Warnings are the output of their test case, which passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from xml.etree import ElementTree as ET

from policies.finding import Finding
from webhook.cli.manifests.evaluate import Result
from webhook.cli.report import junit
from webhook.cli.report.content import CheckReport
from webhook.cli.report.findings import message, remediation
from webhook.cli.report.junit import xml_text
from webhook.cli.report.places import finding_place
from webhook.documents.documents import explanation, place


def report(content: CheckReport) -> Iterator[str]:
    """Yield the document, file by file."""
    yield f'{junit.HEAD}<testsuites name="gpufence">\n'
    for path, group in groupby(content.results, key=lambda result: result.manifest.document.path):
        suite = _suite(path, list(group))
        ET.indent(suite, level=1)
        yield f"  {ET.tostring(suite, encoding='unicode')}\n"
    yield "</testsuites>\n"


def _suite(path: str, results: list[Result]) -> ET.Element:
    verdicts = Counter(result.verdict for result in results)
    errors = sum(result.error is not None for result in results)
    skipped = verdicts["skipped"] + verdicts["unknown"]
    suite = junit.suite_element(path, len(results), verdicts["denied"], errors, skipped)
    names: Counter[str] = Counter()
    for result in results:
        name = xml_text(result.title)
        names[name] += 1
        # Names stay the same from run to run; of objects with the same name, later ones count on.
        shown = name if names[name] == 1 else f"{name} ({names[name]})"
        _fill(junit.case_element(suite, shown), result)
    return suite


def _fill(case: ET.Element, result: Result) -> None:
    if result.error is not None:
        document = result.manifest.document
        what = xml_text(explanation(document, result.error))
        error = ET.SubElement(case, "error", type="invalid", message=what)
        error.text = f"{xml_text(place(document, result.error))}: {what}"
    if result.verdict == "skipped":
        ET.SubElement(case, "skipped", message=result.note or "has no pod template")
    if result.verdict == "unknown":
        ET.SubElement(case, "skipped", message="its Pods are judged when they are created")
    findings = result.decision.findings if result.decision else ()
    enforced = [finding for finding in findings if finding.action == "enforce"]
    if enforced:
        rules = ", ".join(dict.fromkeys(finding.rule for finding in enforced))
        failure = ET.SubElement(case, "failure", type="denied", message=rules)
        failure.text = _listing(result, enforced)
    if others := [finding for finding in findings if finding.action != "enforce"]:
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
        paragraphs.append("\n".join(map(xml_text, lines)))
    return "\n\n".join(paragraphs)
