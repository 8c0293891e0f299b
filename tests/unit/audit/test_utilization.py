"""Idle device-hours, from an answer that Prometheus 2.42 gave to the same query.

Its samples, a minute apart for 4 hours: Pod ``lazy`` holds two devices, one at 0 % and one at 50 %
and in the last hour at 0 %. Those of ``busy`` are at 90 % and 7 %. The series of ``renamed`` was
scraped without ``honor_labels``; it is at 99 %, and in the last 2 hours at 3 %. A last device, at
0 %, has no Pod.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from audit.fleet import LABELS, TAINT, pod_spec
from audit.simulated import Cluster, pod
from controlplane.objects import node
from paths import PROJECT
from running import Run
from webhook.tools.audit.utilization import PrometheusError, idle_hours
from webhook.tools.audit.waste import Window

END = 1795443660.0
ANSWER = (
    '{"status":"success","data":{"resultType":"vector","result":['
    '{"metric":{"namespace":"ml","pod":"busy"},"value":[1795443660,"0"]},'
    '{"metric":{"namespace":"ml","pod":"lazy"},"value":[1795443660,"301"]},'
    '{"metric":{},"value":[1795443660,"241"]},'
    '{"metric":{"exported_namespace":"web","exported_pod":"renamed","namespace":"gpu-operator",'
    '"pod":"dcgm-exporter-x"},"value":[1795443660,"120"]}]}}'
)
NOTHING = '{"status":"success","data":{"resultType":"vector","result":[]}}'
REJECTION = (
    '{"status":"error","errorType":"execution","error":"query processing would load too many'
)


class Prometheus:
    """The API for queries on the loopback interface. It records the queries."""

    def __init__(self) -> None:
        self.status, self.body = 200, ANSWER
        self.queries: list[dict[str, list[str]]] = []
        prometheus = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                is_query = url.path == "/api/v1/query"
                prometheus.queries.append(parse_qs(url.query))
                self.send_response(prometheus.status if is_query else 404)
                self.end_headers()
                self.wfile.write(prometheus.body.encode())

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


def test_idle_hours_are_counted_by_the_pod_of_the_device(prometheus: Prometheus) -> None:
    found = idle_hours(f"{prometheus.address}/", Window(END - 4 * 3600, END))
    assert found[("ml", "lazy")] == pytest.approx(4 + 1, abs=0.05)
    assert found[("web", "renamed")] == pytest.approx(2)
    assert found[("ml", "busy")] == 0
    [query] = prometheus.queries
    assert query["time"] == [f"{END:.3f}"]
    assert "(DCGM_FI_DEV_GPU_UTIL < bool 5)[14400s:60s]" in query["query"][0]


def test_a_long_window_has_at_most_1000_samples_of_a_device(prometheus: Prometheus) -> None:
    found = idle_hours(prometheus.address, Window(END - 1000 * 3600, END))
    assert "[3600000s:3600s]" in prometheus.queries[0]["query"][0]
    assert found[("ml", "lazy")] == pytest.approx(301)


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
                idle_hours(prometheus.address, Window(END - 3600, END))


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """A cluster in which Pod ``lazy`` holds two devices."""
    cluster = Cluster()
    gpus = {"nvidia.com/gpu": "8"}
    cluster.add("Node", node("gpu", labels=LABELS, taints=[TAINT], resources=gpus))
    lazy = pod("lazy", pod_spec(2), node="gpu", namespace="ml")
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
        "waste in 4 h  5.0 device-hours, pool nvidia, namespace ml: 2 nvidia.com/gpu held by Pods "
        "that do " in counted.out
    )
    assert counted.status == 0
    assert "waste" not in gpufence(*options).out

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
