"""Dashboard and alerts speak of metrics that exist, by labels that those carry."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.promql import STEP_SECONDS, Expression, Recorded, evaluate, parse
from deploy.series import exported
from each import each
from paths import CHART, PROJECT

FILES = CHART / "files"

# Metrics of others, and their labels as far as they are used here.
FOREIGN = {
    # k8s.io/apiserver, pkg/admission/metrics/metrics.go; test_install.py sees them in /metrics.
    "apiserver_admission_webhook_rejection_count": {"name", "type", "error_type"},
    "apiserver_admission_webhook_fail_open_count": {"name", "type"},
    "apiserver_admission_webhook_admission_duration_seconds_bucket": {"name", "type", "le"},
}
# What Prometheus itself adds to every series that it scrapes.
TARGET = {"job", "instance", "namespace", "pod", "service"}

# What Grafana puts in place of its variables.
VARIABLES = {"$__rate_interval": "5m"}


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((FILES / "gpufence.rules.yaml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((FILES / "gpufence.json").read_text())["panels"]
    return found


def expressions() -> dict[str, str]:
    """Return every expression of the alerts, the dashboard and the objectives, by where it is."""
    found = {rule["alert"]: rule["expr"] for rule in rules()}
    page = (PROJECT / "docs/operate/monitoring.md").read_text()
    found |= dict(re.findall(r"(?m)^\| ([^|]+) \| `(.+)` \|$", page))
    for panel in panels():
        for target in panel.get("targets", ()):
            expr = target["expr"]
            for variable, value in VARIABLES.items():
                expr = expr.replace(variable, value)
            found[f"{panel['title']} {target['refId']}"] = expr
    return found


@pytest.fixture(scope="module")
def parsed(promql_parser: Path) -> dict[str, Expression]:
    found = expressions()
    return dict(zip(found, parse(promql_parser, list(found.values())), strict=True))


SERIES = exported() | FOREIGN


def test_every_expression_is_of_existing_metrics_and_labels(parsed: dict[str, Expression]) -> None:
    def is_right(where: str) -> None:
        expression = parsed[where]
        assert not expression.error
        assert "$" not in expressions()[where]
        assert expression.selected, "no metric at all"
        assert expression.selected.keys() <= SERIES.keys()
        for name, labels in expression.selected.items():
            assert labels <= SERIES[name] | TARGET
        known = {label for name in expression.selected for label in SERIES[name]}
        assert expression.grouping <= known | TARGET
        # The value of a counter depends on its start: a query needs its rate or increase. Of a new
        # series of others, the first value counts.
        endings = ("_total", "_bucket", "_count")
        bare = expression.bare - FOREIGN.keys()
        assert not [name for name in bare if name.endswith(endings)]

    each(parsed, is_right)


def test_every_gpufence_metric_is_used_by_the_dashboard_or_an_alert(
    parsed: dict[str, Expression],
) -> None:
    used = {name for expression in parsed.values() for name in expression.selected}
    unused = {
        name for name in exported() if not name.startswith("process_") and name not in used
    } - {
        # Shown by their buckets.
        "gpufence_admission_duration_seconds_count",
        "gpufence_admission_duration_seconds_sum",
    }
    assert not unused


def test_every_alert_has_a_severity_and_annotations() -> None:
    assert rules()
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert set(rule["annotations"]) == {"summary", "description"}
        # The page that it sends the reader to is there.
        for page in re.findall(r"docs/[\w/-]+\.md", rule["annotations"]["description"]):
            assert (PROJECT / page).is_file(), page


def counted(before: float | None, *, steps: int = 60) -> list[float | None]:
    """Return the samples of a counter of one event; ``before`` it, it is 0, or there is none."""
    return [before] * 10 + [(before or 0) + 1] * steps


def growing(steps: int, flat: int = 100) -> list[float | None]:
    return [*map(float, range(steps)), *[float(steps)] * flat]


NOW: list[float | None] = [step * STEP_SECONDS for step in range(200)]
CALLED = 'name="pods.gpufence.dev",type="admit"'
REVIEWS = 'gpufence_admission_duration_seconds_bucket{path="/mutate",le='
PROVOKED: dict[str, Recorded] = {
    "GpufenceCallsFail": {
        f'apiserver_admission_webhook_rejection_count{{{CALLED},error_type="calling"}}': counted(
            None
        )
    },
    "GpufenceFailsOpen": {
        f"apiserver_admission_webhook_fail_open_count{{{CALLED}}}": counted(None)
    },
    "GpufenceAbsent": {"gpufence_build_info": [1, *[None] * 40, 1, 1]},
    "GpufenceRuleFails": {'gpufence_rule_failures_total{rule="pool-trespass"}': counted(0)},
    "GpufenceFails": {"gpufence_internal_errors_total": counted(0)},
    "GpufenceSlow": {
        f'{REVIEWS}"0.25"}}': [0.0] * 200,
        f'{REVIEWS}"1.0"}}': growing(100),
        f'{REVIEWS}"+Inf"}}': growing(100),
    },
    "GpufenceOverloaded": {'gpufence_admission_requests_total{result="overloaded"}': growing(40)},
    "GpufenceCertificateExpires": {
        "gpufence_certificate_expiry_timestamp_seconds": [1e9, *[1e6] * 150, 1e9]
    },
    "GpufenceControllerStalled": {
        "gpufence_controller_last_success_timestamp_seconds": [0] * 100 + NOW[100:]
    },
    "GpufenceTaskFails": {'gpufence_task_failures_total{task="registration"}': growing(100)},
    "GpufencePolicyRejected": {"gpufence_policy_stale": [0, *[1] * 30, 0]},
    "GpufencePoliciesDiffer": {
        'gpufence_policy_generation{pod="a"}': [1, *[2] * 30],
        'gpufence_policy_generation{pod="b"}': [*[1] * 30, 2],
        'gpufence_policy_generation{pod="starting"}': [0] * 31,
    },
    "GpufenceConfigurationDrift": {
        'gpufence_registration_writes_total{kind="a",reason="drift"}': growing(150)
    },
    "GpufenceTooManyConnections": {
        'gpufence_connections_refused_total{reason="too_many"}': counted(0)
    },
    "GpufenceFactsStale": {
        # The watch of nodes is back in the end. NodePools are no longer served: the series ends.
        'gpufence_cluster_last_event_timestamp_seconds{resource="nodes"}': [0] * 60 + NOW[60:],
        'gpufence_cluster_last_event_timestamp_seconds{resource="nodepools"}': [0] * 90,
    },
    "GpufenceNodesWithoutLabels": {
        'gpufence_pool_nodes_without_labels{pool="nvidia"}': [0, *[1] * 50, 0]
    },
}
"""By alert, the series that provoke it from their second step on, and end its reason."""


def test_every_alert_fires_and_clears(promql_parser: Path) -> None:
    """A single event is enough for the alerts that count events, also if it starts the series."""
    by_name = {rule["alert"]: rule for rule in rules()}
    assert by_name.keys() == PROVOKED.keys()
    results = evaluate(promql_parser, {by_name[name]["expr"]: PROVOKED[name] for name in PROVOKED})

    def fires(name: str) -> None:
        pending = by_name[name].get("for", "0m")
        seconds = int(pending[:-1]) * {"m": 60, "h": 3600}[pending[-1]]
        steps, needed = results[by_name[name]["expr"]], seconds // STEP_SECONDS + 1
        firing = [
            bool(set.intersection(*steps[end - needed : end])) if end >= needed else False
            for end in range(1, len(steps) + 1)
        ]
        assert not firing[0]
        assert any(firing), f"no result is there for {pending}"
        assert not firing[-1], "it does not clear"

    each(PROVOKED, fires)


def test_panel_ids_are_unique_and_panels_do_not_overlap() -> None:
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
