"""What the well-known custom resources call their Pods."""

from __future__ import annotations

from typing import Any

import pytest

from policies.engine import decide
from policies.kubernetes.templates import role, templates
from strategies import JSON, policies

POD: JSON = {
    "containers": [{"name": "a", "image": "i"}],
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
}
TEMPLATE: JSON = {"spec": POD}
JOB: JSON = {"spec": {"template": TEMPLATE}}
DEVICES: JSON = {"limits": {"nvidia.com/gpu": 1}}

NAMED: dict[str, tuple[str, str, JSON, list[str]]] = {
    "PyTorchJob": (
        "kubeflow.org/v1",
        "PyTorchJob",
        {"pytorchReplicaSpecs": {r: {"template": TEMPLATE} for r in ("Master", "Worker")}},
        ["the Master replicas", "the Worker replicas"],
    ),
    "JobSet": (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {"replicatedJobs": [{"name": name, "template": JOB} for name in ("driver", "workers")]},
        ['replicated job "driver"', 'replicated job "workers"'],
    ),
    "RayCluster": (
        "ray.io/v1",
        "RayCluster",
        {
            "headGroupSpec": {"template": TEMPLATE},
            "workerGroupSpecs": [{"groupName": "gpu", "template": TEMPLATE}],
        },
        ["the head", 'worker group "gpu"'],
    ),
    "LeaderWorkerSet": (
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        {"leaderWorkerTemplate": {"leaderTemplate": TEMPLATE, "workerTemplate": TEMPLATE}},
        ["the leader", "the workers"],
    ),
    "Volcano Job": (
        "batch.volcano.sh/v1alpha1",
        "Job",
        {"tasks": [{"name": "mpi", "template": TEMPLATE}, {"template": TEMPLATE}]},
        ['task "mpi"', ""],
    ),
    "Workflow": (
        "argoproj.io/v1alpha1",
        "Workflow",
        {"templates": [{"name": "train", "container": {"image": "i"}}]},
        ['template "train"'],
    ),
    "InferenceService": (
        "serving.kserve.io/v1beta1",
        "InferenceService",
        {"predictor": POD, "transformer": POD},
        ["the predictor", "the transformer"],
    ),
    "TrainJob": (
        "trainer.kubeflow.org/v1alpha1",
        "TrainJob",
        {"trainer": {"resourcesPerNode": DEVICES}},
        ["the trainer"],
    ),
    "a Deployment": ("apps/v1", "Deployment", {"template": TEMPLATE}, [""]),
}


def made(version: str, kind: str, spec: JSON) -> JSON:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}


@pytest.mark.parametrize("case", NAMED.values(), ids=NAMED)
def test_each_template_of_a_well_known_kind_has_the_expected_role(case: tuple[Any, ...]) -> None:
    version, kind, spec, names = case
    obj = made(version, kind, spec)
    assert [role(obj, template.spec_path) for template in templates(obj)] == names


def test_a_finding_names_the_role_of_its_template() -> None:
    version, kind, spec, _ = NAMED["PyTorchJob"]
    found = decide(made(version, kind, spec), policies()["one taint"]).findings
    assert [finding.detail.rpartition("; ")[2] for finding in found] == [
        "this is about the Master replicas",
        "this is about the Worker replicas",
    ]
    version, kind, spec, _ = NAMED["a Deployment"]
    [finding] = decide(made(version, kind, spec), policies()["one taint"]).findings
    assert "this is about" not in finding.detail
