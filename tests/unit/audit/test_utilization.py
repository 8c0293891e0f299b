"""What devices did, from answers that Prometheus 2.42 gave to the same queries.

Its samples, a minute apart for 4 hours, are those of ``SERIES``: utilization, activity of the
engine, and activity of the memory. The series of ``renamed`` were scraped without ``honor_labels``.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from audit.fleet import pod_spec
from audit.simulated import Cluster, pod
from paths import PROJECT
from running import Run
from webhook.tools.audit.utilization import (
    PrometheusError,
    overtime,
    queries,
    use_of_devices,
)
from webhook.tools.audit.waste import Use, Window, waste
from webhook.tools.cli.report.content import overtime_sentences

END = 1795443660.0
NEVER = Use()
SERIES: dict[str, tuple[str, Use, dict[str, float]]] = {
    "busy": ("90 %, 0.9, 0.5", Use(0, 0, 4), {}),
    "idle": ("0 %, 0, 0", Use(4, 0, 0), {"idle": 4}),
    "hung": ("100 %, 1, 0: a collective that waits", Use(0, 4, 4), {"hung": 4}),
    "dead": ("80 %, 0, 0: the counter failed", NEVER, {"unknown": 4}),
    "disagree": ("0 %, 0.5, 0.1", NEVER, {"unknown": 4}),
    "mig-busy": ("none, 0.6, 0.2", Use(0, 0, 4), {}),
    "mig-idle": ("none, 0.6 for an hour, and then 0", Use(3, 0, 1), {"idle": 3}),
    "mig-dead": ("none, 0, 0", NEVER, {"unknown": 4}),
    "gaps": ("0 %, 0, 0 for two hours, and then none", Use(2, 0, 0), {"idle": 2, "unknown": 2}),
    "no-profiling": ("0 %, none, none", NEVER, {"unknown": 4}),
    "restarted": ("one device idle for two hours, another one busy", Use(2, 0, 2), {"idle": 2}),
    "then-hung": ("100 %, 1, 0.4 for two hours, and then 0", Use(0, 2, 4), {"hung": 2}),
    "renamed": ("3 %, 0.01, 0", Use(4, 0, 0), {"idle": 4}),
}
"""By Pod: its samples, what the queries return, and the hours that an audit counts."""


def answer(query: str) -> str:
    """Return what Prometheus answered: series with a value that is not 0, and some with 0."""
    kind = "idle" if "< bool 5" in query else "hung" if "DRAM" in query else "worked"
    series: list[dict[str, Any]] = []
    for name, (_, use, _) in SERIES.items():
        of = {"namespace": "ml", "pod": name, "Hostname": "gpu"}
        if name == "renamed":
            of = {"exported_namespace": "ml", "exported_pod": name, "Hostname": "gpu"}
            of |= {"namespace": "gpu-operator", "pod": "dcgm-exporter-x"}
        hours = getattr(use, kind)
        if "clamp_min" in query:
            hours = 1.0 if name in ("busy", "idle") else 0.0
        series.append({"metric": of, "value": [END, str(hours)]})
    data = {"resultType": "vector", "result": series}
    return json.dumps({"status": "success", "data": data})


NOTHING = '{"status":"success","data":{"resultType":"vector","result":[]}}'
REJECTION = (
    '{"status":"error","errorType":"execution","error":"query processing would load too many'
)


class Prometheus:
    """The API for queries on the loopback interface. It records the queries."""

    def __init__(self) -> None:
        self.status, self.body = 200, ""
        self.queries: list[dict[str, list[str]]] = []
        prometheus = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                is_query = url.path == "/api/v1/query"
                asked = parse_qs(url.query)
                prometheus.queries.append(asked)
                self.send_response(prometheus.status if is_query else 404)
                self.end_headers()
                body = prometheus.body or answer(asked["query"][0])
                self.wfile.write(body.encode())

            def log_message(self, *_args: object) -> None:
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def prometheus() -> Iterator[Prometheus]:
    made = Prometheus()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


async def test_idle_hung_and_unknown_devices_are_told_apart(prometheus: Prometheus) -> None:
    window = Window(END - 4 * 3600, END)
    use = use_of_devices(f"{prometheus.address}/", window)
    assert use == {("ml", name): of_series for name, (_, of_series, _) in SERIES.items()}
    assert {query["time"][0] for query in prometheus.queries} == {f"{END:.3f}"}
    cluster = Cluster()
    cluster.add_gpu_nodes("gpu", devices=99)
    for name in (*SERIES, "without-series"):
        made = pod(name, pod_spec(1), node="gpu", namespace="ml")
        made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        cluster.add("Pod", made)
    pools = (await cluster.audit()).pools
    expected = {name: hours for name, (_, _, hours) in SERIES.items()}
    expected["without-series"] = {"unknown": 4}
    found = {}
    for name in expected:
        [state] = pools
        alone = replace(state, requests=[r for r in state.requests if r[0].owned.name == name])
        rows = waste([alone], window, use)
        found[name] = {row.kind: row.hours for row in rows if row.kind != "held"}
    assert found == expected


def test_a_long_window_has_at_most_1000_samples_of_a_device() -> None:
    asked = queries(Window(END - 1000 * 3600, END))
    assert all("[3600000s:3600s]" in query for query in asked.values())


async def test_runs_beyond_the_longest_run_time_count_while_they_last_and_after(
    prometheus: Prometheus,
) -> None:
    window = Window(END - 4 * 3600, END)
    limit = overtime(prometheus.address, window, 3 * 3600)
    assert [run.name for run in limit.past] == ["busy", "idle"]
    cluster = Cluster()
    cluster.add_gpu_nodes("gpu")
    for name, hours in (("busy", 30), ("short", 2)):
        made = pod(name, pod_spec(2), node="gpu", namespace="ml")
        since = datetime.fromtimestamp(END - hours * 3600, UTC).isoformat()
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": since}
        made["status"]["conditions"] = [condition]
        cluster.add("Pod", made)
    pools = (await cluster.audit()).pools
    rows = waste(pools, window, {}, {"nvidia": limit})
    [row] = [row for row in rows if row.kind == "overtime"]
    # Pod busy is there: all 4 hours of the window are beyond its third hour.
    assert (row.devices, row.hours, row.pods) == (2, 2 * 4 + 1, ("busy", "idle"))
    [sentence] = overtime_sentences(rows)
    assert sentence == (
        "9.0 device-hours, pool nvidia, namespace ml, by busy, idle; 2 nvidia.com/gpu are held now"
    )


def test_an_answer_that_is_no_result_is_an_error(
    prometheus: Prometheus, subtests: pytest.Subtests
) -> None:
    for status, body, expected in (
        (422, REJECTION, "HTTP 422: .*would load too many"),
        (200, "<html>", "not that of a query of Prometheus"),
        (200, "[]", "not that of a query of Prometheus"),
    ):
        with subtests.test(body=body):
            prometheus.status, prometheus.body = status, body
            with pytest.raises(PrometheusError, match=expected):
                use_of_devices(prometheus.address, Window(END - 3600, END))


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """A cluster in which Pod ``idle`` holds two devices."""
    cluster = Cluster()
    cluster.add_gpu_nodes("gpu")
    lazy = pod("idle", pod_spec(2), node="gpu", namespace="ml")
    lazy["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    cluster.add("Pod", lazy)
    with cluster.api.in_thread():
        yield cluster.api.kubeconfig(tmp_path / "kubeconfig")


AUDIT = ("audit", "--policy", PROJECT / "policies" / "default.yaml")


def test_the_audit_counts_idle_devices_with_prometheus(
    prometheus: Prometheus, kubeconfig: Path, gpufence: Run
) -> None:
    options = (*AUDIT, "--kubeconfig", kubeconfig, "--fail-on", "never", "--since", "4h")
    counted = gpufence(*options, "--prometheus", prometheus.address)
    assert (
        "waste in 4 h  4.0 device-hours, pool nvidia, namespace ml: 2 nvidia.com/gpu held by Pods "
        "that do " in counted.out
    )
    assert counted.status == 0
    assert "waste" not in gpufence(*options).out
    more = ("--what-if-max-runtime", "3h", "--what-if-min-devices", "4")
    what_if = gpufence(*options, *more, "--prometheus", prometheus.address).out
    assert "beyond the longest run time  9.0 device-hours" in what_if
    assert "what if pods held more devices  pool nvidia with minDevices 4: without 1 Pod" in what_if

    prometheus.body = NOTHING
    nothing = gpufence(*options, "--prometheus", prometheus.address)
    assert "has no DCGM_FI_DEV_GPU_UTIL" in nothing.err
    assert nothing.status == 0


def test_prometheus_that_does_not_answer_is_reported_with_what_to_do(
    kubeconfig: Path, gpufence: Run
) -> None:
    options = (*AUDIT, "--kubeconfig", kubeconfig, "--prometheus")
    done = gpufence(*options, "http://127.0.0.1:1")
    assert done.status == 2
    assert "Error: --prometheus: http://127.0.0.1:1 has not answered: " in done.err
    assert "Correct the address, or leave out the option." in done.err
    assert "is not a URL. Write it like http://localhost:9090." in gpufence(*options, "x:1").err
