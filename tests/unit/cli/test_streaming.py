"""Reports are written while the results come in, wherever the format allows it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime

import pytest

from policies.document.shipped import shipped_policy
from policies.facts import Request
from running import TRESPASSER
from webhook.cli.manifests.evaluate import Result, evaluate
from webhook.cli.report.content import CheckReport
from webhook.cli.report.formats import load_format
from webhook.documents.documents import read_documents
from webhook.documents.objects import read_objects

COUNT = 50


def counted(taken: list[Result]) -> Iterator[Result]:
    """Yield results of as many files, and note which of them were taken."""
    for number in range(COUNT):
        (document,) = read_documents(f"{number}.yaml", TRESPASSER)
        manifests = list(read_objects(document))
        (result,) = evaluate(manifests, shipped_policy(), Request(today=date(2026, 1, 1)))
        taken.append(result)
        yield result


@pytest.mark.parametrize("name", ["json", "sarif", "junit", "github"])
def test_reports_are_streamed_result_by_result(name: str) -> None:
    taken: list[Result] = []
    content = CheckReport(counted(taken), "default", datetime(2026, 1, 1, tzinfo=UTC))
    pieces = iter(load_format("check", name).report(content))
    for piece in pieces:
        if "1.yaml" in piece:
            break
    assert 1 <= len(taken) <= 3
    rest = "".join(pieces)
    assert len(taken) == COUNT
    assert f"{COUNT - 1}.yaml" in rest
