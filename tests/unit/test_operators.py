"""What `make operators` makes of examples and of an audit log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from operators.audit import AuditLog, Outcome, verdict
from operators.variants import service_accounts, variants

JSON = dict[str, Any]

JOB_SET: JSON = {
    "kind": "JobSet",
    "spec": {
        "replicatedJobs": [
            {"template": {"spec": {"template": {"spec": {"containers": [{"name": name}]}}}}}
            for name in ("driver", "worker")
        ]
    },
}
RAY_JOB: JSON = {"kind": "RayJob", "spec": {**JOB_SET["spec"], "entrypoint": "python train.py"}}
WORKFLOW: JSON = {
    "kind": "Workflow",
    "spec": {
        "entrypoint": "main",
        "serviceAccountName": "workflow",
        "templates": [
            {"name": "main", "steps": [[{"name": "train", "template": "train"}]]},
            {"name": "prepare", "script": {"source": "true"}},
            {"name": "train", "containerSet": {"containers": [{"name": "a"}, {"name": "b"}]}},
        ],
    },
}


def changed(obj: JSON, variant: str) -> JSON:
    return dict(variants(obj))[variant]


def test_an_object_without_pod_templates_has_no_variants() -> None:
    obj = {"kind": "TrainJob", "spec": {"runtimeRef": {"name": "torch"}}}
    assert list(variants(obj)) == [("as written", obj)]


@pytest.mark.parametrize(
    ("obj", "count"),
    [(JOB_SET, 2), (RAY_JOB, 2), (WORKFLOW, 2)],
    ids=["JobSet", "RayJob", "Workflow"],
)
def test_one_container_of_each_pod_requests_a_gpu(obj: JSON, count: int) -> None:
    text = json.dumps(changed(obj, "every Pod requests a GPU"))
    assert text.count('"limits": {"nvidia.com/gpu": 1}') == count


def test_the_last_pod_trespasses() -> None:
    first, last = changed(JOB_SET, "a Pod trespasses")["spec"]["replicatedJobs"]
    assert "tolerations" not in json.dumps(first)
    assert "tolerations" in json.dumps(last)


def test_each_step_of_a_workflow_trespasses() -> None:
    obj = changed(WORKFLOW, "a Pod trespasses")
    assert [bool(t.get("tolerations")) for t in obj["spec"]["templates"]] == [False, True, True]


def test_the_workflow_shares_the_network() -> None:
    assert changed(WORKFLOW, "a GPU Pod on the host network")["spec"]["hostNetwork"] is True


def test_the_service_account_of_a_workflow_is_created() -> None:
    assert service_accounts(WORKFLOW) == {"workflow"}


def event(verb: str, resource: str, code: int, message: str = "", **annotations: str) -> str:
    line = {
        "verb": verb,
        "objectRef": {"resource": resource, "namespace": "work"},
        "responseStatus": {"code": code, "message": message},
        "annotations": annotations,
    }
    return json.dumps(line) + "\n"


def test_the_audit_log_is_read_while_it_grows(tmp_path: Path) -> None:
    log, lines = AuditLog(tmp_path), tmp_path / "audit.log"
    assert log.outcomes("work") == []
    mutated = '{"configuration":"gpufence","webhook":"pods.gpufence.dev","mutated":true}'
    annotation = "mutation.webhook.admission.k8s.io/round_0_index_0"
    whole = event("create", "pods", 201, **{annotation: mutated}) + event("create", "jobs", 201)
    # The API server has written a part of the last line.
    lines.write_text(whole[:-5])
    assert log.outcomes("work") == [Outcome("pods", "mutated", "")]
    lines.write_text(whole)
    assert log.outcomes("work") == [Outcome("pods", "mutated", ""), Outcome("jobs", "allowed", "")]
    assert verdict(log.outcomes("work")) == "mutated"


def test_an_update_counts_if_it_is_denied(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    denied = "admission webhook denied the request: gpufence: ..."
    (tmp_path / "audit.log").write_text(
        event("update", "jobs", 200)
        + event("update", "jobs", 409, "the object has been modified")
        + event("patch", "jobs", 403, denied)
    )
    assert log.outcomes("work") == [Outcome("jobs", "denied", denied)]
