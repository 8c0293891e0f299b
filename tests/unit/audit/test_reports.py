"""An audit in every format that it has."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import xmlschema

from audit.simulated import Cluster
from paths import SCHEMAS
from webhook.audit.cluster_audit import Audit
from webhook.cli.manifests.evaluate import Result
from webhook.cli.report import audit_text as audit_report
from webhook.cli.report.audit_results import results_of


@pytest.fixture
async def audit(tmp_path: Path) -> Audit:
    cluster = Cluster()
    await cluster.api.start()
    try:
        cluster.fill(12, 6, 60)
        cluster.api.refuse["/apis/batch/v1/cronjobs"] = (403, "cronjobs.batch is forbidden")
        return await cluster.audit(tmp_path)
    finally:
        await cluster.api.stop()


@pytest.fixture
def results(audit: Audit) -> list[Result]:
    return list(results_of(audit))


def written(audit: Audit, name: str, results: list[Result]) -> str:
    return "".join(audit_report.report(audit, "a cluster", name, results))


def test_the_text_has_pools_findings_and_what_was_not_seen(
    audit: Audit, results: list[Result]
) -> None:
    lines = [line.text for line in audit_report.lines(audit, results, quiet=False)]
    assert lines[0].startswith("pool nvidia  6 nodes, 48 devices: 58 requested, 24 of them by Pods")
    assert lines[0].endswith("; 4 trespassers")
    assert "denied   Job web/cache-warmer  web/jobs.batch/cache-warmer" in lines
    assert "  warn  gpu-node-without-taint  nodes/gpu-1  spec.taints" in lines
    assert any(line.startswith("not seen  cronjobs.batch: not listed") for line in lines)
    assert lines[-1].startswith(f"{len(results)} objects with 60 running Pods: ")


def test_a_quiet_text_has_only_what_was_found(audit: Audit, results: list[Result]) -> None:
    lines = [line.text for line in audit_report.lines(audit, results, quiet=True)]
    assert lines[0].startswith("allowed  Node gpu-1")
    assert not any(line.startswith(("pool ", "not seen")) for line in lines)


def test_the_json_says_who_holds_what(audit: Audit, results: list[Result]) -> None:
    report = json.loads(written(audit, "json", results))
    assert (report["kind"], report["pods"]) == ("AuditReport", 60)
    [pool] = report["pools"]
    first = pool["nodes"][0]
    assert (first["name"], first["free"], first["hasTaint"]) == ("gpu-1", 1, False)
    assert sum(held["count"] for held in first["held"]) == 7
    assert first["trespassers"] == ["web/cache-warmer-1", "batch/debug-shell"]
    assert {"path", "pods", "remark"} == set(report["owners"][0])
    assert report["summary"]["objects"] == len(results)


def test_the_sarif_is_valid_and_names_what_stands_for_a_file(
    audit: Audit, results: list[Result]
) -> None:
    report = json.loads(written(audit, "sarif", results))
    schema = json.loads((SCHEMAS / "sarif-schema-2.1.0.json").read_text())
    jsonschema.Draft4Validator(schema).validate(report)
    found = {
        (result["ruleId"], location["physicalLocation"]["artifactLocation"]["uri"])
        for result in report["runs"][0]["results"]
        for location in result["locations"]
    }
    assert ("pool-trespass", "web/jobs.batch/cache-warmer") in found
    assert ("gpu-node-without-taint", "nodes/gpu-1") in found


def test_the_junit_is_valid(audit: Audit, results: list[Result]) -> None:
    schema = xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd")
    schema.validate(written(audit, "junit", results))


def test_the_markdown_has_the_findings(audit: Audit, results: list[Result]) -> None:
    table = written(audit, "markdown", results)
    assert "| enforce | `Pod batch/debug-shell` | `pool-trespass` |" in table
