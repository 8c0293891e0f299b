"""Dashboard and alerts speak of metrics that exist, by labels that those carry."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from deploy.render import DEPLOY
from policies.policy import default_policy_text, parse_policy
from webhook.cluster_metrics import ClusterMetrics
from webhook.metrics import Metrics
from webhook.upkeep_metrics import UpkeepMetrics

# Metrics of others, and their labels as far as they are used here.
FOREIGN = {
    # k8s.io/apiserver, pkg/admission/metrics/metrics.go; test_install.py sees them in /metrics.
    "apiserver_admission_webhook_rejection_count": {"name", "type", "error_type"},
    "apiserver_admission_webhook_admission_duration_seconds_bucket": {"name", "type", "le"},
    # NVIDIA/dcgm-exporter, etc/default-counters.csv.
    "DCGM_FI_DEV_GPU_UTIL": {"namespace", "pod"},
    # kube-state-metrics, docs/metrics/workload/pod-metrics.md.
    "kube_pod_container_resource_requests": {"namespace", "pod", "node", "resource"},
}
# What Prometheus itself adds to every series that it scrapes.
TARGET = {"job", "instance", "namespace", "pod", "service"}

WORDS = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LITERALS = re.compile(r'"(?:[^"\\]|\\.)*"|\[[^\]]*\]|\$\w+')
SELECTOR = re.compile(r"([a-zA-Z_]\w*)\{([^}]*)\}")
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
LANGUAGE = {
    *("sum", "min", "max", "count", "avg", "rate", "increase", "absent", "time", "vector"),
    *("histogram_quantile", "by", "on", "or", "and", "unless", "group_left", "avg_over_time"),
}


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((DEPLOY / "alerts" / "gpufence.rules.yaml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DEPLOY / "dashboards" / "gpufence.json").read_text())[
        "panels"
    ]
    return found


def expressions() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


EXPRESSIONS = [pytest.param(expr, id=f"{where}: {expr[:40]}") for where, expr in expressions()]


def exported() -> dict[str, set[str]]:
    """Return the series of a server by name, with the labels that they carry."""
    policy = parse_policy(yaml.safe_load(default_policy_text())).compile()
    metrics = Metrics(policy, "test")
    metrics.track_certificate(lambda: 0.0)
    upkeep = UpkeepMetrics(metrics.registry)
    upkeep.track_policy(lambda: 1, lambda: "")
    upkeep.track_leader(lambda: True)
    cluster = ClusterMetrics(metrics.registry)
    cluster.track(_Cluster())  # type: ignore[arg-type]
    return {
        name: labels
        for family, labels in _labels(metrics.registry).items()
        for name in _series(family, metrics.registry)
    }


class _Cluster:
    """As much of ClusterFacts as its metrics look at."""

    def objects(self) -> dict[str, int]:
        return {"nodes": 1}

    def staleness(self) -> dict[str, float | None]:
        return {"nodes": 1.0}


def _labels(registry: CollectorRegistry) -> dict[str, set[str]]:
    """Return the labels of each family of metrics: those of its samples, or those declared."""
    found: dict[str, set[str]] = {}
    for collector in set(registry._collector_to_names):  # noqa: SLF001
        declared = set(getattr(collector, "_labelnames", ()))
        for family in collector.collect():
            sampled = {label for sample in family.samples for label in sample.labels}
            found[family.name] = declared | sampled
    return found


def _series(family: str, registry: CollectorRegistry) -> list[str]:
    kinds = {each.name: each.type for each in registry.collect()}
    endings = {"counter": ["_total"], "info": ["_info"], "histogram": ["_bucket", "_sum", "_count"]}
    return [family + ending for ending in endings.get(kinds[family], [""])]


SERIES = exported() | FOREIGN


def names(expr: str) -> set[str]:
    """Return the metrics of an expression: its words, but for the language's and the labels."""
    bare = GROUPING.sub(" ", re.sub(r"\{[^}]*\}", " ", LITERALS.sub(" ", expr)))
    return set(WORDS.findall(bare)) - LANGUAGE


def labels(expr: str) -> set[str]:
    """Return the labels that an expression selects or groups by."""
    bare = LITERALS.sub('""', expr)
    matched = {word for _, inner in SELECTOR.findall(bare) for word in WORDS.findall(inner)}
    return matched | {word for inner in GROUPING.findall(bare) for word in WORDS.findall(inner)}


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_every_metric_exists_with_every_label_that_is_used(expr: str) -> None:
    assert names(expr), "no metric at all"
    assert names(expr) <= SERIES.keys()
    known = {label for name in names(expr) for label in SERIES[name]}
    assert labels(expr) <= known | TARGET | {"le"}


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_counters_are_never_shown_bare(expr: str) -> None:
    """What a counter has come to since some start says nothing: its rate or increase does."""
    for name in names(expr):
        if name.endswith(("_total", "_bucket", "_count")):
            assert re.search(rf"\b(rate|increase)\({name}\b", expr)


def test_the_reader_of_expressions_knows_a_metric_that_is_none() -> None:
    expr = 'sum by (rule) (rate(gpufence_finding_total{action="warn"}[5m])) or vector(0)'
    assert names(expr) == {"gpufence_finding_total"}
    assert labels(expr) == {"rule", "action"}
    assert not names(expr) <= SERIES.keys()


def test_every_metric_of_the_fence_itself_is_shown_or_watched() -> None:
    used = set().union(*(names(expr) for _, expr in expressions()))
    unused = {
        name for name in exported() if not name.startswith("process_") and name not in used
    } - {
        # Shown by their buckets.
        "gpufence_admission_duration_seconds_count",
        "gpufence_admission_duration_seconds_sum",
    }
    assert not unused


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    assert rules()
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert set(rule["annotations"]) == {"summary", "description"}
        # The page that it sends the reader to is there.
        for page in re.findall(r"docs/[\w-]+\.md", rule["annotations"]["description"]):
            assert (DEPLOY.parent / page).is_file(), page


def test_every_panel_has_an_id_and_a_place_of_its_own() -> None:
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
