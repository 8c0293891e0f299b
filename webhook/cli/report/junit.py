"""JUnit XML for CI systems: a suite a file, a test case an object, a failure where it is denied.

Source: ``junit-10.xsd`` of Jenkins' xUnit plugin, which describes what is in use. Warnings are the
output of their test case, which passes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from xml.etree import ElementTree as ET

from policies.finding import Finding
from webhook.cli.manifests.evaluate import Result
from webhook.cli.manifests.sentence import explanation, place
from webhook.cli.printable import printable
from webhook.cli.report.places import finding_place

# What XML 1.0 cannot say, not even as a reference, and ``clean`` leaves.
_NO_CHARACTER = re.compile("[\ud800-\udfff\ufffe\uffff]")


def report(results: Iterable[Result]) -> Iterator[str]:
    """Yield the document, file by file."""
    yield '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="gpufence">\n'
    for path, group in groupby(results, key=lambda result: result.manifest.document.path):
        suite = _suite(xml_text(path), list(group))
        ET.indent(suite, level=1)
        yield f"  {ET.tostring(suite, encoding='unicode')}\n"
    yield "</testsuites>\n"


def _suite(path: str, results: list[Result]) -> ET.Element:
    verdicts = Counter(result.verdict for result in results)
    suite = ET.Element(
        "testsuite",
        name=path,
        tests=str(len(results)),
        failures=str(verdicts["denied"]),
        errors=str(verdicts["invalid"]),
        skipped=str(verdicts["skipped"]),
    )
    names: Counter[str] = Counter()
    for result in results:
        name = xml_text(_name(result))
        names[name] += 1
        # Names stay the same from run to run; of objects called alike, the later ones are counted.
        shown = name if names[name] == 1 else f"{name} ({names[name]})"
        _fill(ET.SubElement(suite, "testcase", name=shown, classname=path), result)
    return suite


def _name(result: Result) -> str:
    document = result.manifest.document
    if not result.kind:
        return f"document {document.index + 1}" if document.text else "file"
    name = "/".join(filter(None, (result.namespace, result.name)))
    return f"{result.kind} {name}".rstrip()


def _fill(case: ET.Element, result: Result) -> None:
    if result.error is not None:
        document = result.manifest.document
        what = xml_text(explanation(document, result.error))
        error = ET.SubElement(case, "error", type="invalid", message=what)
        error.text = f"{xml_text(place(document, result.error))}: {what}"
    if result.verdict == "skipped":
        ET.SubElement(case, "skipped", message="has no pod template")
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
            f"{finding.path}: {finding.reason}: {finding.detail}.",
        ]
        if finding.advice:
            lines.append(f"advice: {finding.advice}.")
        paragraphs.append("\n".join(map(xml_text, lines)))
    return "\n\n".join(paragraphs)


def xml_text(text: str) -> str:
    """Return one line of text with what XML or a terminal could not take written as an escape."""
    return _NO_CHARACTER.sub(lambda match: ascii(match[0])[1:-1], printable(text))
