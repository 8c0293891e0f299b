"""The report for people, line by line."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from running import PLAIN_POD, TRESPASSER, Run
from webhook.documents.document import DocumentError
from webhook.documents.files import read_documents
from webhook.documents.objects import read_objects
from webhook.tools.cli.evaluate import Result
from webhook.tools.cli.report import text
from webhook.tools.cli.report.content import CheckReport
from webhook.tools.cli.report.output import Terminal


def lines(*results: Result) -> list[str]:
    report = CheckReport("default", datetime(2026, 1, 1, tzinfo=UTC), results)
    return "".join(text.check(report, Terminal())).splitlines()


def test_errors_of_invalid_list_items_have_the_line_of_the_item(gpufence: Run) -> None:
    items = ["kind: Pod", "1", "{apiVersion: v1, kind: List, items: 1}"]
    source = "\n  - ".join(["apiVersion: v1\nkind: List\nitems:", *items])
    shown = gpufence("check", "-", stdin=source).out.splitlines()
    places = [re.search(r"<stdin>:(\d+)", line) for line in shown]
    assert [place[1] for place in places if place] == ["4", "4", "5", "5", "6", "6"]


def test_an_error_without_a_line_has_the_line_of_its_document() -> None:
    (document,) = read_documents("a.yaml", '{"apiVersion": "v1", "kind": "Pod", "x": "\\ud800"}')
    (one,) = read_objects(document)
    assert isinstance(one.error, DocumentError)
    assert lines(Result(one, "invalid", error=one.error))[1].startswith(
        "  a.yaml:1: document 1: has half of a surrogate pair"
    )


def test_plain_objects_are_counted_and_shown_only_on_request(gpufence: Run, tmp_path: Path) -> None:
    config_map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}"
    (tmp_path / "a.yaml").write_text("\n---\n".join([config_map, PLAIN_POD, TRESPASSER]))
    ran = gpufence("check", "a.yaml")
    assert [line.split()[0] for line in ran.out.splitlines() if line[:1].strip()] == [
        "denied",
        "3",
        "Explain",
    ]
    assert "3 objects: 1 denied, 1 allowed, 1 skipped" in ran.out
    verbose = gpufence("check", "--verbose", "a.yaml").out.splitlines()
    assert [line.split()[0] for line in verbose if line[:1].strip()] == [
        "skipped",
        "allowed",
        "denied",
        "3",
        "Explain",
    ]
    assert gpufence("check", "--verbose", "--quiet", "a.yaml").status == 2
