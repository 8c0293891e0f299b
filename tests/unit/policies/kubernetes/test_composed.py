"""Pods that Argo Workflows and KServe compose from pieces, judged where the pieces stand."""

from __future__ import annotations

from typing import Any

import pytest

from cases.loading import compiled, policy_document
from policies.engine import decide
from policies.kubernetes.objects import MalformedObjectError
from policies.policy import Policy
from strategies import policies

GPU = {"limits": {"nvidia.com/gpu": "1"}}
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
PRIVILEGED = {"privileged": True}


@pytest.fixture(scope="module")
def policy() -> Policy:
    return policies()["one taint"]


def workflow(*templates: dict[str, Any], kind: str = "Workflow", **spec: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"templates": list(templates), **spec}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": "pipeline"},
        "spec": {"workflowSpec": body} if kind == "CronWorkflow" else body,
    }


def service(**predictor: Any) -> dict[str, Any]:
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "model"},
        "spec": {"predictor": predictor},
    }


def train_job(**trainer: Any) -> dict[str, Any]:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "train"},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer},
    }


def paths(obj: dict[str, Any], policy: Policy) -> list[str]:
    return [finding.path for finding in decide(obj, policy).findings]


def test_a_workflow_gpu_step_is_mutated_in_argo_template_fields(policy: Policy) -> None:
    step = {"name": "train", "container": {"image": "cuda", "resources": GPU}}
    plain = {"name": "report", "script": {"image": "python", "source": "print()"}}
    decision = decide(workflow(step, plain), policy)
    assert decision.verdict == "mutated"
    trained, reported = decision.mutated["spec"]["templates"]
    assert trained["tolerations"] == [TOLERATION]
    assert trained["securityContext"]["runAsNonRoot"] is True
    assert trained["container"]["securityContext"]["allowPrivilegeEscalation"] is False
    assert "containers" not in trained
    assert reported == plain
    assert decide(decision.mutated, policy).verdict == "allowed"


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Workflow", "spec.templates[0].tolerations[0]"),
        ("WorkflowTemplate", "spec.templates[0].tolerations[0]"),
        ("ClusterWorkflowTemplate", "spec.templates[0].tolerations[0]"),
        ("CronWorkflow", "spec.workflowSpec.templates[0].tolerations[0]"),
    ],
)
def test_a_trespassing_step_is_found_in_every_workflow_kind(
    policy: Policy, kind: str, path: str
) -> None:
    step = {"name": "a", "container": {"image": "web"}, "tolerations": [TOLERATION]}
    assert paths(workflow(step, kind=kind), policy) == [path]


def test_a_workflow_level_toleration_is_reported_with_its_path(policy: Policy) -> None:
    step = {"name": "a", "container": {"image": "web"}}
    assert paths(workflow(step, tolerations=[TOLERATION]), policy) == ["spec.tolerations[0]"]


def test_a_step_with_tolerations_does_not_inherit_workflow_tolerations(policy: Policy) -> None:
    step = {"name": "a", "container": {"image": "web"}, "tolerations": [{"key": "spot"}]}
    assert paths(workflow(step, tolerations=[TOLERATION]), policy) == []


def test_a_sidecar_of_a_step_is_checked_as_a_container(policy: Policy) -> None:
    step = {
        "name": "train",
        "container": {"image": "cuda", "resources": GPU},
        "sidecars": [{"name": "proxy", "image": "proxy", "securityContext": PRIVILEGED}],
    }
    found = paths(workflow(step), policy)
    assert "spec.templates[0].sidecars[0].securityContext.privileged" in found


def test_a_template_that_runs_no_container_is_skipped(policy: Policy) -> None:
    steps = {"name": "main", "steps": [[{"name": "a", "template": "b"}]]}
    assert decide(workflow(steps), policy).verdict == "skipped"


def test_an_inference_service_with_a_gpu_model_is_mutated(policy: Policy) -> None:
    model = {"modelFormat": {"name": "huggingface"}, "resources": GPU}
    decision = decide(service(model=model, minReplicas=1), policy)
    assert decision.verdict == "mutated"
    predictor = decision.mutated["spec"]["predictor"]
    assert predictor["tolerations"] == [TOLERATION]
    assert predictor["model"]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "containers" not in predictor


def test_additional_predictor_containers_are_reported_with_their_paths(policy: Policy) -> None:
    obj = service(
        model={"modelFormat": {"name": "onnx"}, "resources": GPU},
        containers=[{"name": "proxy", "image": "proxy", "securityContext": PRIVILEGED}],
    )
    found = paths(obj, policy)
    assert "spec.predictor.containers[0].securityContext.privileged" in found


def test_an_invalid_model_quantity_is_reported_with_its_path(policy: Policy) -> None:
    model = {"resources": {"limits": {"nvidia.com/gpu": "${GPUS}"}}}
    with pytest.raises(MalformedObjectError, match=r"^spec\.predictor\.model\.resources\.limits"):
        decide(service(model=model), policy)


def test_a_gpu_step_merges_inherited_fields_with_added_fields(policy: Policy) -> None:
    zone = {"key": "zone", "operator": "In", "values": ["a"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    shared: dict[str, Any] = {
        "affinity": {"nodeAffinity": required},
        "tolerations": [{"key": "spot"}],
    }
    gpu = {"name": "train", "container": {"image": "cuda", "resources": GPU}}
    plain = {"name": "report", "container": {"image": "python"}}
    mutated = decide(workflow(gpu, plain, **shared), policy).mutated
    trained, reported = mutated["spec"]["templates"]
    assert trained["tolerations"] == [{"key": "spot"}, TOLERATION]
    required = trained["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert len(required["nodeSelectorTerms"][0]["matchExpressions"]) == 2
    assert reported == plain
    assert {key: mutated["spec"][key] for key in shared} == shared


def test_devices_of_a_train_job_are_checked_without_its_runtime(
    policy: Policy,
) -> None:
    written = {"limits": {"nvidia.com/gpu": 1}, "requests": {"nvidia.com/gpu": 1}}
    decision = decide(train_job(numNodes=2, resourcesPerNode=written), policy)
    # Neither a toleration nor a security context could be written here, nor is missing.
    assert (decision.verdict, decision.pools) == ("unknown", ("nvidia",))
    unequal = train_job(resourcesPerNode={**written, "requests": {"nvidia.com/gpu": 2}})
    [finding] = decide(unequal, policy).findings
    assert finding.rule == "unequal-device-limits"
    assert finding.path == "spec.trainer.resourcesPerNode.requests[nvidia.com/gpu]"
    assert 'container "node" has request 2' in finding.detail


def test_train_job_devices_are_counted_per_node() -> None:
    pools = policy_document("default")["pools"]
    small = compiled(policy_document("default") | {"pools": [{**pools[0], "largestRequest": 4}]})
    job = train_job(numNodes=8, resourcesPerNode={"limits": {"nvidia.com/gpu": 8}})
    [finding] = decide(job, small).findings
    assert finding.rule == "oversized-device-request"
    job["spec"]["trainer"]["resourcesPerNode"]["limits"]["nvidia.com/gpu"] = 4
    assert decide(job, small).allowed


def test_a_mutation_completes_the_device_resources_of_a_train_job(
    policy: Policy,
) -> None:
    job = train_job(resourcesPerNode=GPU)
    mutated = decide(job, policy).mutated
    assert mutated["spec"]["trainer"] == {"resourcesPerNode": {**GPU, "requests": GPU["limits"]}}
    assert job["spec"]["trainer"] == {"resourcesPerNode": GPU}


@pytest.mark.parametrize(
    "trainer", [{}, {"resourcesPerNode": {"limits": {"cpu": 1}}}, {"resourcesPerNode": None}]
)
def test_a_train_job_without_device_resources_has_an_unknown_verdict(
    policy: Policy, trainer: dict[str, Any]
) -> None:
    assert decide(train_job(**trainer), policy).verdict == "unknown"
