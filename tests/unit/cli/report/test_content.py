"""An audit in every format that it has."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import pytest
from msgspec.structs import replace

from audit.simulated import Cluster
from each import each
from running import assert_golden
from webhook.tools.audit.cluster_audit import Audit
from webhook.tools.audit.waste import Row
from webhook.tools.cli.report import html, text
from webhook.tools.cli.report.content import AuditReport, results_of
from webhook.tools.cli.report.output import FORMATS, Terminal


@pytest.fixture
async def audit() -> Audit:
    cluster = Cluster()
    cluster.fill(6, 3, 20)
    cluster.api.errors["/apis/batch/v1/cronjobs"] = (403, "cronjobs.batch is forbidden")
    return await cluster.audit()


GPU = "nvidia.com/gpu"
WASTE = [
    Row(
        "nvidia",
        f"team-{n}",
        "notReady",
        GPU,
        n,
        24.0 * n,
        48.0 * n,
        (f"train-{n}", "b"),
        ("gpu-1",),
    )
    for n in range(7, 0, -1)
]
HELD = Row("nvidia", "team-1", "held", GPU, 8, 192.0, 384.0, ("train-1",), ("gpu-1",))


@pytest.fixture
def content(audit: Audit) -> AuditReport:
    return AuditReport(
        "default",
        datetime(2026, 11, 22, tzinfo=UTC),
        list(results_of(audit)),
        audit=audit,
        cluster="a cluster",
        waste=(*WASTE, HELD),
        hours=24.0,
    )


GOLDEN = Path(__file__).with_name("audit")


def test_the_report_of_an_audit_is_as_expected(content: AuditReport) -> None:
    def is_as_expected(name: str) -> None:
        module = import_module(f"webhook.tools.cli.report.{name}")
        terminal = (Terminal(),) if name == "text" else ()
        report = "".join(module.audit(content, *terminal))
        assert_golden(GOLDEN / f"report.{name}", report)

    each(sorted({*FORMATS["audit"]} - {"html"}), is_as_expected)


def test_a_quiet_text_report_has_only_findings(content: AuditReport) -> None:
    quiet = "".join(text.audit(replace(content, quiet=True), Terminal()))
    assert quiet.startswith("denied   ")
    shown = "".join(text.audit(content, Terminal()))
    assert all(line in shown for line in quiet.splitlines())
    assert not re.search("^(pool |waste|not audited)", quiet, re.MULTILINE)


def test_the_html_report_shows_each_kind_of_waste_as_a_bar(content: AuditReport) -> None:
    page = "".join(html.audit(content))
    section = page.partition('<section id="waste"')[2].partition("</section>")[0]
    widths = re.findall(r'<rect width="(\d+)" height="8" class="fill">', section)
    assert widths == ["100", "86", "71", "57", "43", "29", "14"]
    assert "<td>336.00</td>" in section
    assert "<b>672</b> <span>device-hours of nvidia.com/gpu wasted in 24 h</span>" in page
    assert "Fix or delete them: kubectl describe pod -n team-7 train-7." in section
    assert 'id="waste"' not in "".join(html.audit(replace(content, waste=())))
