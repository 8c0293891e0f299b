"""JUnit reports: valid by the schema in use, a test case an object, a failure a denied one."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import junit_schema
from running import FAULTS, Run


def suites_of(gpufence: Run, *args: str | Path, stdin: str = "") -> ET.Element:
    """Return the root of a valid report."""
    text = gpufence("check", "--output", "junit", *args, stdin=stdin).out
    junit_schema.validate(text)
    return ET.fromstring(text)  # noqa: S314 - the tests' own output


def test_characters_that_xml_forbids_are_escaped(gpufence: Run) -> None:
    name = '"<&\\u0007\\uFFFE\\u2028]]>"'
    suites = suites_of(gpufence, "-", stdin=FAULTS.replace("name: web\n  n", f"name: {name}\n  n"))
    assert suites[0][0].get("name") == "Deployment shop/<&\\x07\\ufffe\\u2028]]>"
