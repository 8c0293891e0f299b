"""Custom resources, above all those whose Pods a controller composes from pieces.

Each file of ``manifests`` has two documents: what is expected (the verdict, and the paths of
the findings and of the parts that are not judged), and a minimal manifest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import deciding
from deciding import GPU, TOLERATION, required
from policies.decision import Decision
from policies.engine import decide
from policies.facts import Facts, Request
from policies.kubernetes.claims import Claim
from policies.kubernetes.paths import field_path
from specs import JSON
from webhook.tools.custom_resources import workload

MANIFESTS = sorted(Path(__file__).parent.glob("manifests/*.yaml"))
POLICY = deciding.policy()
STEP = {"name": "a", "container": {"image": "web"}}
GPU_STEP = {"name": "train", "container": {"image": "cuda", **GPU}}
NIM_CACHE: JSON = {"apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMCache", "spec": {}}


def workflow(*templates: JSON, kind: str = "Workflow", **spec: Any) -> JSON:
    body = {"templates": list(templates), **spec}
    spec = {"workflowSpec": body} if kind == "CronWorkflow" else body
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": kind, "spec": spec}


def train_job(**trainer: Any) -> JSON:
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": spec}


def decided(obj: JSON) -> Decision:
    return decide(workload(obj, POLICY), POLICY)


def paths(obj: JSON) -> list[str]:
    return [finding.path for finding in decided(obj).findings]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_a_custom_resource_has_the_expected_verdict_and_paths(manifest: Path) -> None:
    expected, obj = yaml.safe_load_all(manifest.read_text())
    decision = decided(obj)
    places = [finding.path for finding in decision.findings]
    places += [field_path(part.path) for part in decision.unjudged]
    assert (decision.verdict, places) == (expected["verdict"], expected.get("paths", []))
    assert decided(decision.mutated).mutated == decision.mutated, "a second decision adds nothing"


def test_a_workflow_gpu_step_is_mutated_in_argo_template_fields() -> None:
    decision = decided(workflow(GPU_STEP, STEP))
    trained, reported = decision.mutated["spec"]["templates"]
    assert trained["tolerations"] == [TOLERATION]
    assert trained["securityContext"]["runAsNonRoot"] is True
    assert trained["container"]["securityContext"]["allowPrivilegeEscalation"] is False
    assert "containers" not in trained
    assert reported == STEP
    assert decided(decision.mutated).verdict == "allowed"


def test_a_gpu_step_merges_inherited_fields_with_added_fields() -> None:
    shared: JSON = {**required("zone In a"), "tolerations": [{"key": "spot"}]}
    mutated = decided(workflow(GPU_STEP, STEP, **shared)).mutated
    trained, reported = mutated["spec"]["templates"]
    assert trained["tolerations"] == [{"key": "spot"}, TOLERATION]
    affinity = trained["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert len(affinity["nodeSelectorTerms"][0]["matchExpressions"]) == 2
    assert reported == STEP
    assert {key: mutated["spec"][key] for key in shared} == shared


def test_resource_claims_of_a_workflow_apply_to_its_steps() -> None:
    obj = workflow(
        {"name": "a", "container": {"image": "a", "resources": {"claims": [{"name": "gpu"}]}}},
        tolerations=[TOLERATION],
        resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "one"}],
    )
    claims = {("default", "one"): Claim((frozenset({"gpu.nvidia.com"}),))}
    assert (
        decide(workload(obj, POLICY), POLICY, facts=Facts(claim_templates=claims)).verdict
        == "mutated"
    )


def test_the_advice_names_the_security_context_of_a_spark_executor() -> None:
    executor = {
        "gpu": {"name": "nvidia.com/gpu", "quantity": 1},
        "securityContext": {"runAsUser": 185},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    spec = {"type": "Python", "image": "spark", "volumes": volumes, "driver": {}}
    obj: JSON = {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication"}
    obj["spec"] = {**spec, "executor": executor}
    [finding] = decided(obj).findings
    assert "in spec.executor.podSecurityContext. Or set readOnly" in finding.remediation
    executor["podSecurityContext"] = {"fsGroup": 185, "fsGroupChangePolicy": "OnRootMismatch"}
    assert decided(obj).findings == ()


def test_devices_of_a_train_job_are_checked_without_its_runtime() -> None:
    written = {"limits": {"nvidia.com/gpu": 1}, "requests": {"nvidia.com/gpu": 1}}
    decision = decided(train_job(numNodes=2, resourcesPerNode=written))
    # Neither a toleration nor a security context could be written here, nor is missing.
    assert (decision.verdict, decision.pools) == ("unknown", ("nvidia",))
    unequal = train_job(resourcesPerNode={**written, "requests": {"nvidia.com/gpu": 2}})
    [finding] = decided(unequal).findings
    assert finding.rule == "unequal-device-limits"
    assert finding.path == "spec.trainer.resourcesPerNode.requests[nvidia.com/gpu]"
    assert 'container "node" has request 2' in finding.detail


def test_a_mutation_completes_the_device_resources_of_a_train_job() -> None:
    limits = GPU["resources"]["limits"]
    job = train_job(resourcesPerNode=GPU["resources"])
    completed = {"resourcesPerNode": {"limits": limits, "requests": limits}}
    assert decided(job).mutated["spec"]["trainer"] == completed
    assert job["spec"]["trainer"] == {"resourcesPerNode": {"limits": limits}}


def test_an_object_with_unjudged_parts_is_allowed_in_an_exempt_namespace() -> None:
    assert decided(NIM_CACHE).verdict == "unknown"
    decision = decide(workload(NIM_CACHE, POLICY), POLICY, Request(namespace="gpu-operator"))
    assert decision.verdict == "allowed"
    assert decision.exemption == "the policy exempts namespace gpu-operator"
