"""An audit in every format that it has."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from importlib import import_module

import pytest
from msgspec.structs import replace

import junit_schema
from audit.simulated import Cluster
from webhook.audit.cluster_audit import Audit
from webhook.audit.waste import Row
from webhook.cli.evaluate import Result
from webhook.cli.report import csv, html, text
from webhook.cli.report import json as json_format
from webhook.cli.report.content import AuditReport, results_of
from webhook.cli.report.output import Terminal


@pytest.fixture
async def audit() -> Audit:
    cluster = Cluster()
    cluster.fill(12, 6, 60)
    cluster.api.errors["/apis/batch/v1/cronjobs"] = (403, "cronjobs.batch is forbidden")
    return await cluster.audit()


@pytest.fixture
def results(audit: Audit) -> list[Result]:
    return list(results_of(audit))


def content(audit: Audit, results: list[Result], *, quiet: bool = False) -> AuditReport:
    now = datetime(2026, 11, 22, tzinfo=UTC)
    return AuditReport("default", now, results, quiet, audit=audit, cluster="a cluster")


WASTE = [
    Row("nvidia", f"team-{n}", "notReady", n, 24.0 * n, 48.0 * n, (f"train-{n}", "b"))
    for n in range(7, 0, -1)
]
HELD = Row("nvidia", "team-1", "held", 8, 192.0, 384.0, ("train-1",))


def with_waste(audit: Audit, results: list[Result]) -> AuditReport:
    return replace(content(audit, results), waste=(*WASTE, HELD), hours=24.0)


def lines(audit: Audit, results: list[Result], *, quiet: bool = False) -> list[str]:
    report = "".join(text.audit(content(audit, results, quiet=quiet), Terminal()))
    return report.splitlines()


def written(audit: Audit, name: str, results: list[Result]) -> str:
    module = import_module(f"webhook.cli.report.{name}")
    return "".join(module.audit(content(audit, results)))


def test_the_text_report_has_pools_findings_and_skipped_resources(
    audit: Audit, results: list[Result]
) -> None:
    shown = lines(audit, results)
    assert shown[0].startswith("pool nvidia  6 nodes, 48 devices: 58 requested, 24 of them by ")
    assert shown[0].endswith("; 4 trespassers")
    assert "denied   Job web/cache-warmer  web/jobs.batch/cache-warmer" in shown
    assert "  warn  gpu-node-without-taint  nodes/gpu-1  spec.taints" in shown
    assert any(line.startswith("not audited  cronjobs.batch: not listed") for line in shown)
    [summary] = [line for line in shown if line.startswith(f"{len(results)} objects with 60 run")]
    assert summary.endswith("(policy: default)")


def test_the_text_report_sorts_findings_by_severity(audit: Audit, results: list[Result]) -> None:
    actions = [line.split()[0] for line in lines(audit, results, quiet=True) if line[2:3].strip()]
    found = [action for action in actions if action in ("enforce", "warn", "audit")]
    assert found == sorted(found, key=["enforce", "warn", "audit"].index)
    assert set(found) >= {"enforce", "warn"}


def test_a_quiet_text_report_has_only_findings(audit: Audit, results: list[Result]) -> None:
    shown = lines(audit, results, quiet=True)
    assert shown[0].startswith("denied   ")
    assert not any(line.startswith(("pool ", "not audited")) for line in shown)


def test_the_json_report_has_the_devices_held_on_each_node(
    audit: Audit, results: list[Result]
) -> None:
    report = json.loads(written(audit, "json", results))
    assert (report["kind"], report["pods"]) == ("AuditReport", 60)
    [pool] = report["pools"]
    first = pool["nodes"][0]
    assert (first["name"], first["free"], first["hasTaint"]) == ("gpu-1", 1, False)
    assert sum(held["count"] for held in first["held"]) == 7
    assert list(first["held"][0]) == ["namespace", "pod", "resource", "count"]
    assert all(list(usage) == ["placed", "waiting"] for usage in pool["namespaces"].values())
    assert first["trespassers"] == ["web/cache-warmer-1", "batch/debug-shell"]
    assert {"path", "pods", "remark"} == set(report["owners"][0])
    assert report["summary"]["objects"] == len(results)


def test_the_text_report_has_the_five_most_expensive_kinds_of_waste(
    audit: Audit, results: list[Result]
) -> None:
    shown = "".join(text.audit(with_waste(audit, results), Terminal())).splitlines()
    first, *_ = waste = [line for line in shown if line.startswith("waste in ")]
    assert len(waste) == 5
    assert first == (
        "waste in 24 h  168.0 device-hours (cost 336.00), pool nvidia, namespace team-7: 7 devices "
        "held by Pods that are not Ready. Fix or delete them: "
        "kubectl describe pod -n team-7 train-7."
    )
    assert "waste" not in "".join(
        text.audit(replace(with_waste(audit, results), quiet=True), Terminal())
    )


def test_the_json_and_csv_reports_have_the_table_of_device_hours(
    audit: Audit, results: list[Result]
) -> None:
    report = with_waste(audit, results)
    table = json.loads("".join(json_format.audit(report)))["waste"]
    assert table["hours"] == 24
    assert len(table["rows"]) == 8
    assert table["rows"][0] == {
        "pool": "nvidia",
        "namespace": "team-7",
        "kind": "notReady",
        "devices": 7,
        "deviceHours": 168.0,
        "cost": 336.0,
        "pods": ["train-7", "b"],
    }
    header, first, *others = "".join(csv.audit(report)).splitlines()
    assert header == "pool,namespace,kind,devices,deviceHours,cost,pods"
    assert first == "nvidia,team-7,notReady,7,168.0,336.0,train-7 b"
    assert len(others) == 7


def test_the_html_report_shows_each_kind_of_waste_as_a_bar(
    audit: Audit, results: list[Result]
) -> None:
    page = "".join(html.audit(with_waste(audit, results)))
    section = page.partition('<section id="waste"')[2].partition("</section>")[0]
    widths = re.findall(r'<rect width="(\d+)" height="8" class="fill">', section)
    assert widths == ["100", "86", "71", "57", "43", "29", "14"]
    assert "<td>336.00</td>" in section
    assert "<b>672</b> <span>device-hours wasted in 24 h</span>" in page
    assert "Fix or delete them: kubectl describe pod -n team-7 train-7." in section
    assert 'id="waste"' not in written(audit, "html", results)


def test_the_junit_report_is_valid(audit: Audit, results: list[Result]) -> None:
    junit_schema.validate(written(audit, "junit", results))


def test_the_markdown_report_has_the_findings(audit: Audit, results: list[Result]) -> None:
    table = written(audit, "markdown", results)
    assert "| enforce | `Pod batch/debug-shell` | `pool-trespass` |" in table
