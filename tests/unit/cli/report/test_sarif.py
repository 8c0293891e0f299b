"""SARIF: valid by its schema, with the places, levels and identities of the findings."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from paths import SCHEMAS
from policies.registry import RULES
from running import BROKEN, FAULTS, GPU_POD, NO_QUANTITY, Run
from webhook.tools.cli.report.sarif import FINGERPRINT

SCHEMA = json.loads((SCHEMAS / "sarif-schema-2.1.0.json").read_text())


def log_of(gpufence: Run, *args: str | Path, stdin: str = "") -> dict[str, Any]:
    """Return the only run of a valid log."""
    log = gpufence("check", "--output", "sarif", *args, stdin=stdin).report
    jsonschema.Draft4Validator(SCHEMA).validate(log)
    (run,) = log["runs"]
    assert isinstance(run, dict)
    return run


@pytest.mark.parametrize("text", [FAULTS, GPU_POD, BROKEN, NO_QUANTITY, f"{BROKEN}---\n{FAULTS}"])
def test_the_log_is_valid_by_the_schema(gpufence: Run, text: str) -> None:
    log_of(gpufence, "-", stdin=text)


def test_a_file_outside_the_working_directory_has_a_file_uri(
    gpufence: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "faults.yaml").write_text(FAULTS)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    result = log_of(gpufence, "../faults.yaml")["results"][0]
    (location,) = result["locations"]
    uri = location["physicalLocation"]["artifactLocation"]["uri"]
    assert uri.startswith("file:///")
    assert uri.endswith("/faults.yaml")


def test_every_rule_has_a_description_and_its_page_as_help(gpufence: Run) -> None:
    driver = log_of(gpufence, "-", stdin=GPU_POD)["tool"]["driver"]
    assert driver["version"] == version("gpufence")
    # Only releases have a semantic version.
    assert "semanticVersion" not in driver
    assert [rule["id"] for rule in driver["rules"]] == [rule.id for rule in RULES]
    for description, rule in zip(driver["rules"], RULES, strict=True):
        title = rule.title
        assert description["shortDescription"]["text"] == title
        assert 40 < len(description["fullDescription"]["text"]) <= 1024
        assert "##" not in description["fullDescription"]["text"]
        assert description["help"]["markdown"].startswith(f"# {title}\n\n## ")


def test_a_run_without_errors_has_execution_successful(gpufence: Run) -> None:
    run = log_of(gpufence, "-", stdin=FAULTS)
    assert run["invocations"] == [{"executionSuccessful": True}]


def test_fingerprints_do_not_change_with_line_numbers(gpufence: Run, tmp_path: Path) -> None:
    def fingerprints(text: str) -> list[str]:
        (tmp_path / "a.yaml").write_text(text)
        return [
            result["partialFingerprints"][FINGERPRINT]
            for result in log_of(gpufence, "a.yaml")["results"]
        ]

    before = fingerprints(FAULTS)
    assert len(set(before)) == len(before)
    assert fingerprints(f"# a licence\n\n{FAULTS}") == before
    another = "          tolerations:\n            - key: other\n              operator: Exists\n"
    assert fingerprints(FAULTS.replace("          tolerations:\n", another)) == before
    assert (
        fingerprints(FAULTS.replace("name: web\n  namespace", "name: shop\n  namespace")) != before
    )
