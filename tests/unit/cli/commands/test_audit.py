"""``gpufence audit --policy-reports`` where a report cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.simulated import Cluster
from running import Run

REPORTS = "/apis/openreports.io/v1alpha1"
TRESPASSER = {
    "metadata": {"name": "peek", "namespace": "web"},
    "spec": {
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "containers": [{"name": "web", "image": "nginx:1.29"}],
    },
}


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (
            403,
            "Error: In namespace web, the API server rejects 1 report: cannot be created",
        ),
        (500, "Error: cannot be created (HTTP 500)"),
    ],
)
def test_audit_results_are_printed_if_a_policy_report_cannot_be_written(
    gpufence: Run, tmp_path: Path, refusal: int, expected: str
) -> None:
    cluster = Cluster()
    cluster.add("Pod", TRESPASSER)
    api = cluster.api
    api.objects[REPORTS] = {}
    for resource in ("reports", "clusterreports"):
        api.serve(f"{REPORTS}/{resource}")
    api.errors[f"{REPORTS}/namespaces/web/reports/gpufence-uid-1"] = (refusal, "cannot be created")
    with api.in_thread():
        kubeconfig = api.kubeconfig(tmp_path / "kubeconfig")
        done = gpufence("audit", "--policy-reports", "--kubeconfig", kubeconfig)
    assert "denied   Pod web/peek" in done.out
    assert expected in done.err
    assert done.status == 2
