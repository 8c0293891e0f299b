"""JUnit reports: valid by the schema in use, a test case an object, a failure a denied one."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import junit_schema
from running import BROKEN, CONFIG_MAP, FAULTS, GPU_POD, Run
from webhook.tools.cli.report import junit
from webhook.tools.doctor import DoctorLine


def suites_of(gpufence: Run, *args: str | Path, stdin: str = "") -> ET.Element:
    """Return the root of a valid report."""
    text = gpufence("check", "--output", "junit", *args, stdin=stdin).out
    junit_schema.validate(text)
    return ET.fromstring(text)  # noqa: S314 - the tests' own output


def test_the_schema_rejects_an_incomplete_test_suite() -> None:
    from xmlschema import XMLSchemaValidationError

    with pytest.raises(XMLSchemaValidationError):
        junit_schema.validate("<testsuites><testsuite name='a'/></testsuites>")


def test_each_file_is_a_suite_and_each_object_a_case(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("---\n".join([FAULTS, GPU_POD, CONFIG_MAP]))
    (tmp_path / "b.yaml").write_text(BROKEN)
    suites = suites_of(gpufence, "a.yaml", "b.yaml", "c.yaml")
    assert [suite.attrib for suite in suites] == [
        {"name": "a.yaml", "tests": "4", "failures": "2", "errors": "0", "skipped": "1"},
        {"name": "b.yaml", "tests": "1", "failures": "0", "errors": "1", "skipped": "0"},
        {"name": "c.yaml", "tests": "1", "failures": "0", "errors": "1", "skipped": "0"},
    ]
    assert [
        (case.get("name"), [child.tag for child in case]) for case in suites.iter("testcase")
    ] == [
        ("Deployment shop/web", ["failure"]),
        ("Pod default/peek", ["failure"]),
        ("Pod ml/train", []),
        ("ConfigMap settings", ["skipped"]),
        ("document 1", ["error"]),
        ("file", ["error"]),
    ]
    assert {case.get("classname") for case in suites[0]} == {"a.yaml"}


def test_characters_that_xml_forbids_are_escaped(gpufence: Run) -> None:
    name = '"<&\\u0007\\uFFFE\\u2028]]>"'
    suites = suites_of(gpufence, "-", stdin=FAULTS.replace("name: web\n  n", f"name: {name}\n  n"))
    assert suites[0][0].get("name") == "Deployment shop/<&\\x07\\ufffe\\u2028]]>"


def test_the_report_of_a_doctor_has_a_case_for_each_check() -> None:
    lines = [
        DoctorLine("ok", "policy", "valid"),
        DoctorLine("fail", "nodes", "no taint", "Add it"),
        DoctorLine("skip", "trials", "unknown"),
    ]
    text = "".join(junit.doctor(lines))
    junit_schema.validate(text)
    suite = ET.fromstring(text)  # noqa: S314 - the tests' own output
    assert [(case.get("name"), [each.tag for each in case]) for case in suite] == [
        ("policy", ["system-out"]),
        ("nodes", ["failure"]),
        ("trials", ["skipped"]),
    ]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
