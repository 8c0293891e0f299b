"""JUnit XML, as ``junit-10.xsd`` of Jenkins' xUnit plugin describes it."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from webhook.wording import printable

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'

# Characters that XML 1.0 cannot hold, even as a reference, and that ``printable`` leaves.
_NO_CHARACTER = re.compile("[\ud800-\udfff\ufffe\uffff]")


def suite_element(
    path: str, tests: int, failures: int, errors: int, skipped: int = 0
) -> ET.Element:
    """Return the element for the test cases of one file."""
    return ET.Element(
        "testsuite",
        name=xml_text(path),
        tests=str(tests),
        failures=str(failures),
        errors=str(errors),
        skipped=str(skipped),
    )


def case_element(suite: ET.Element, name: str) -> ET.Element:
    """Add a test case to a suite; ``name`` is XML text already."""
    return ET.SubElement(suite, "testcase", name=name, classname=suite.get("name", ""))


def xml_text(text: str) -> str:
    """Return one line of text, with what XML or a terminal cannot take written as an escape."""
    return _NO_CHARACTER.sub(lambda match: ascii(match[0])[1:-1], printable(text))
