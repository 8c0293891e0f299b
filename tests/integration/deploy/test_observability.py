"""Dashboard and alerts speak of metrics that exist, by labels that those carry."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.promql import Expression, parse
from deploy.series import exported
from each import each
from paths import CHART, PROJECT

FILES = CHART / "files"

# Metrics of others, and their labels as far as they are used here.
FOREIGN = {
    # k8s.io/apiserver, pkg/admission/metrics/metrics.go; test_install.py sees them in /metrics.
    "apiserver_admission_webhook_rejection_count": {"name", "type", "error_type"},
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
    """Return every expression of the alerts and of the dashboard, by where it is."""
    found = {rule["alert"]: rule["expr"] for rule in rules()}
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
        # The value of a counter depends on its start: a query needs its rate or increase.
        endings = ("_total", "_bucket", "_count")
        assert not [name for name in expression.bare if name.endswith(endings)]

    each(parsed, is_right)


def test_the_parser_reports_syntax_errors_and_unknown_metrics(promql_parser: Path) -> None:
    wrong = ["sum by (rule) (rate(gpufence_finding_total[5m])", 'gpufence_finding_total{rul="x"}']
    unclosed, unknown = parse(promql_parser, wrong)
    assert "unclosed left parenthesis" in unclosed.error
    assert unknown.selected == {"gpufence_finding_total": {"rul"}}
    assert unknown.bare == {"gpufence_finding_total"}
    assert "gpufence_finding_total" not in SERIES
    assert "gpufence_findings_total" in SERIES


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


def test_a_rejected_policy_has_one_alert() -> None:
    expressions = {rule["alert"]: rule["expr"] for rule in rules()}
    assert "gpufence_policy_stale" in expressions["GpufencePolicyRejected"]


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
