"""The report for people, line by line."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from policies.decision import Decision
from policies.finding import Finding
from policies.kubernetes.editor import PatchOperation
from running import BROKEN, CONFIG_MAP, GPU_POD, PLAIN_POD, TRESPASSER, Run
from webhook.cli.evaluate import Result
from webhook.cli.report import text
from webhook.cli.report.content import CheckReport
from webhook.cli.report.output import Terminal
from webhook.documents.document import DocumentError, explanation
from webhook.documents.files import read_documents
from webhook.documents.objects import Manifest, read_objects


def manifests(source: str) -> list[Manifest]:
    return [m for d in read_documents("a.yaml", source) for m in read_objects(d)]


def lines(*results: Result) -> list[str]:
    report = CheckReport("default", datetime(2026, 1, 1, tzinfo=UTC), results)
    return "".join(text.check(report, Terminal())).splitlines()


def value(one: Manifest) -> dict[str, Any]:
    assert one.value is not None
    return one.value


def test_errors_of_invalid_list_items_have_the_line_of_the_item(gpufence: Run) -> None:
    items = ["kind: Pod", "1", "{apiVersion: v1, kind: List, items: 1}"]
    source = "\n  - ".join(["apiVersion: v1\nkind: List\nitems:", *items])
    shown = gpufence("check", "-", stdin=source).out.splitlines()
    places = [re.search(r"<stdin>:(\d+)", line) for line in shown]
    assert [place[1] for place in places if place] == ["4", "4", "5", "5", "6", "6"]


def test_a_finding_has_position_path_reason_detail_and_remediation() -> None:
    (one,) = manifests(TRESPASSER)
    findings = (
        Finding(
            "pool-trespass",
            "spec.template.spec.tolerations[0]",
            "it trespasses",
            "it tolerates the taint",
            "Remove the toleration",
        ),
        Finding("device-leak", "spec.template.spec.hostPID", "it leaks", "GPUs", action="warn"),
    )
    decision = Decision(value(one), findings=findings, pools=("nvidia", "amd"))
    assert lines(Result(one, "denied", decision, "default")) == [
        "denied   Deployment default/web  a.yaml:1  requests devices of pool nvidia, amd",
        "  enforce  pool-trespass  a.yaml:9  spec.template.spec.tolerations[0]",
        "    it trespasses: it tolerates the taint.",
        "    remediation: Remove the toleration.",
        # The field is not there: the line is that of the nearest thing that is.
        "  warn  device-leak  a.yaml:7  spec.template.spec.hostPID",
        "    it leaks: GPUs.",
        "",
        "1 object: 1 denied; 1 warning (policy: default)",
        "Explain the rule: gpufence explain pool-trespass",
        "Explain the rule: gpufence explain device-leak",
    ]


def test_a_mutation_is_shown_as_a_diff_with_context_lines() -> None:
    (one,) = manifests(GPU_POD)
    before = value(one)
    decision = Decision(before, (PatchOperation("/spec/tolerations", [{"operator": "Exists"}]),))
    assert lines(Result(one, "mutated", decision, "ml")) == [
        "mutated  Pod ml/train  a.yaml:1",
        "  @@",
        "       resources:",
        "         limits:",
        "           nvidia.com/gpu: 1",
        "  +  tolerations:",
        "  +  - operator: Exists",
        "",
        "1 object: 1 mutated (policy: default)",
    ]


def test_a_workload_without_a_template_is_reported() -> None:
    (patch,) = manifests("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {}\n")
    skipped = Decision(value(patch), has_template=False)
    first, *_ = lines(Result(patch, "skipped", skipped))
    assert first == "skipped  Deployment web  a.yaml:1  has no pod template, as if it were a patch"


def test_objects_without_details_are_listed_without_blank_lines() -> None:
    plain, settings, values = manifests(f"{PLAIN_POD}---\n{CONFIG_MAP}---\nreplicas: 3\n")
    exempt = Decision(value(plain), exemption="the policy exempts namespace x")
    skipped = Decision(value(settings), has_template=False)
    assert lines(
        Result(plain, "allowed", exempt, "x"),
        Result(settings, "skipped", skipped),
        Result(values, "skipped"),
    ) == [
        "allowed  Pod x/web  a.yaml:1  exempt: the policy exempts namespace x",
        "skipped  ConfigMap settings  a.yaml:10",
        "skipped  document 3  a.yaml:17  not a Kubernetes object",
        "",
        "3 objects: 1 allowed, 2 skipped (policy: default)",
    ]


def test_an_error_is_shown_with_position_and_remediation() -> None:
    (one,) = manifests(BROKEN)
    error = one.error
    assert error is not None
    assert lines(Result(one, "invalid", error=error)) == [
        "invalid  document 1  a.yaml:1",
        f"  a.yaml:4:1: {explanation(one.document, error)}",
        "",
        "1 object: 1 invalid (policy: default)",
    ]


def test_excepted_findings_are_listed() -> None:
    (one,) = manifests(TRESPASSER)
    finding = Finding("pool-trespass", "spec.x", "it trespasses", "detail")
    decision = Decision(value(one), excepted=(finding,))
    assert lines(Result(one, "allowed", decision, "default"))[1] == (
        "  excepted  pool-trespass  it trespasses (at spec.x)"
    )


def test_a_path_with_a_colon_or_a_space_is_not_escaped(gpufence: Run, tmp_path: Path) -> None:
    (tmp_path / "a b:c.yaml").write_text(PLAIN_POD)
    assert gpufence("check", "a b:c.yaml").out.splitlines()[0] == (
        "allowed  Pod default/web  a b:c.yaml:1"
    )


def test_check_prints_the_report_of_all_documents(gpufence: Run) -> None:
    done = gpufence("check", "-", stdin=f"{GPU_POD}---\n{PLAIN_POD}---\n{CONFIG_MAP}")
    shown = done.out.splitlines()
    assert shown[0] == "mutated  Pod ml/train  <stdin>:1  requests devices of pool nvidia"
    assert "  +  tolerations:" in shown
    assert shown[-4:] == [
        "allowed  Pod default/web  <stdin>:14",
        "skipped  ConfigMap settings  <stdin>:23",
        "",
        "3 objects: 1 mutated, 1 allowed, 1 skipped (policy: default)",
    ]


def test_an_error_without_a_line_has_the_line_of_its_document() -> None:
    (document,) = read_documents("a.yaml", '{"apiVersion": "v1", "kind": "Pod", "x": "\\ud800"}')
    (one,) = read_objects(document)
    assert isinstance(one.error, DocumentError)
    assert lines(Result(one, "invalid", error=one.error))[1].startswith(
        "  a.yaml:1: document 1: has half of a surrogate pair"
    )
