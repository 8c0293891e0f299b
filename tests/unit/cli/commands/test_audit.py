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


def test_audit_results_are_printed_if_a_policy_report_cannot_be_written(
    gpufence: Run, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    cluster = Cluster()
    cluster.add("Pod", TRESPASSER)
    api = cluster.api
    api.follow("gpufence")
    api.objects[REPORTS] = {}
    for resource in ("reports", "clusterreports"):
        api.serve(f"{REPORTS}/{resource}")
    rejected = "In namespace web, the API server rejects 1 report: cannot be created"
    for status, expected in ((403, rejected), (500, "cannot be created (HTTP 500)")):
        with subtests.test(status=status):
            report = f"{REPORTS}/namespaces/web/reports/gpufence-uid-1"
            api.errors[report] = (status, "cannot be created")
            with api.in_thread():
                kubeconfig = api.kubeconfig(tmp_path / "kubeconfig")
                done = gpufence("audit", "--policy-reports", "--kubeconfig", kubeconfig)
            assert "denied   Pod web/peek" in done.out
            assert f"Error: {expected}" in done.err
            assert done.status == 2
