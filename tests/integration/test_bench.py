"""The benchmarks: their inputs, ratios and page."""

from __future__ import annotations

import base64
import json
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from bench import cli, engine, report, reviews, scale
from bench.apiserver import NOTHING, Created
from bench.contestants import GO, GPUFENCE
from bench.results import Results, machine, ratios, regressions
from bench.serving import Served
from reviewing import default_policy
from webhook.serve.admission.handler import Admission
from webhook.serve.metrics.replica import Metrics


def response(case: reviews.Case, endpoint: reviews.Endpoint) -> Any:
    policy = default_policy()
    admission = Admission(policy, Metrics(policy, "default"), date.today)
    body = reviews.body(case, endpoint)
    return json.loads(engine.answer_of(admission, engine.PATHS[endpoint], body))["response"]


def test_recorded_reviews_mutate_gpu_pods_only(subtests: pytest.Subtests) -> None:
    of_pods = [case for case in reviews.CASES if case != "deployment"]
    for case in of_pods:
        with subtests.test(case=case):
            reviewed = response(case, "mutate")
            assert reviewed["allowed"]
            patch = json.loads(base64.b64decode(reviewed.get("patch", "W10=")))
            assert bool(patch) is (case != "plain-pod")


def test_recorded_reviews_pass_every_check() -> None:
    assert all(response(case, "validate")["allowed"] for case in reviews.CASES)


def results(rate: float) -> Results:
    served = {
        name: Served(rate=by, p50=1.0, p99=100 / by, cpu=0.1, memory=50)
        for name, by in ((GPUFENCE, rate), (GO, 10.0))
    }
    created = {
        name: Created(rate=by, alone=1.0, server_cpu=1.0, total_cpu=cpu)
        for name, by, cpu in ((GPUFENCE, rate, 2.0), (GO, 10.0, 3.0))
    }
    return Results(
        machine=machine(),
        serving={"gpu-pod mutate": served},
        apiserver={"gpu-pod": {**created, NOTHING: Created(100.0, 1.0, 1.0, 1.0)}},
        cli=cli.Measured(
            start={cli.GPUFENCE: cli.Usage(wall=0.1, cpu=0.09, memory=30)},
            checking={
                "10 files": {
                    cli.GPUFENCE: cli.Usage(wall=2.0, cpu=100 / rate, memory=107),
                    cli.PYYAML: cli.Usage(wall=5.0, cpu=7.0, memory=490),
                }
            },
        ),
    )


def test_a_ratio_that_falls_by_a_fifth_is_a_regression() -> None:
    baseline = ratios(results(50.0))
    assert baseline["gpu-pod mutate: requests/s of the Go webhook's"] == 5
    assert baseline["gpu-pod mutate: p99 of the Go webhook relative to gpufence"] == 5
    assert baseline["gpu-pod: CPU of Go controller-runtime relative to gpufence"] == 1.5
    assert (
        baseline["10 files: CPU of PyYAML's CSafeLoader (parses only) relative to gpufence"] == 3.5
    )
    assert regressions(ratios(results(41.0)), baseline) == []
    lines = regressions(ratios(results(39.0)), baseline)
    assert "gpu-pod: creates/s of no policy's: 0.39, was 0.50" in lines
    assert (
        "10 files: CPU of PyYAML's CSafeLoader (parses only) relative to gpufence: 2.73, was 3.50"
        in lines
    )
    assert not any("CPU of the Go webhook" in line for line in lines)


def test_only_the_section_between_the_marks_is_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    monkeypatch.setattr(report, "PAGE", page)
    report.write(results(50.0))
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| gpufence | 50 | 1.00 | 2.00 | 0.100 | 50 |" in text
    assert "| PyYAML's CSafeLoader (parses only) | 5.00 | 2.50 | 7.00 | 490 |" in text
    assert "| gpufence check | 100 | 90 |" in text


def test_gpufence_reports_the_trespassing_manifests(tmp_path: Path) -> None:
    paths = cli.write_manifests(tmp_path, 100)
    assert [cli.trespasses(path) for path in paths.values()] == [2, 2]


async def test_a_replica_becomes_ready_in_the_fake_cluster_of_many_nodes(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server, _ = scale.started(20, tmp_path, stack)
        figures = await scale.synced(server, 20)
    assert "synced after, CPU s" in figures
