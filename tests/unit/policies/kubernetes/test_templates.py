"""Pod templates are found wherever an object embeds them, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from policies.engine import decide
from policies.kubernetes.objects import MalformedObjectError
from policies.kubernetes.paths import field_path
from policies.kubernetes.template import Template
from policies.kubernetes.templates import is_core_workload
from reviewing import with_value
from strategies import JSON, policies
from webhook.tools.custom_resources import find, workload

SPEC: JSON = {"containers": [{"name": "main", "image": "i"}]}
TEMPLATE: JSON = {"metadata": {"labels": {"app": "x"}}, "spec": SPEC}


def templates(obj: JSON) -> tuple[Template, ...]:
    return find(obj).templates


def template_paths(api_version: str, kind: str, **fields: Any) -> list[str]:
    obj = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, **fields}
    return [f"{template.kind} {field_path(template.spec_path)}" for template in templates(obj)]


@pytest.mark.parametrize(
    ("api_version", "kind", "path"),
    [
        ("v1", "Pod", "spec"),
        ("v1", "PodTemplate", "template.spec"),
        ("v1", "ReplicationController", "spec.template.spec"),
        ("apps/v1", "Deployment", "spec.template.spec"),
        ("apps/v1", "StatefulSet", "spec.template.spec"),
        ("apps/v1", "DaemonSet", "spec.template.spec"),
        ("apps/v1", "ReplicaSet", "spec.template.spec"),
        ("extensions/v1beta1", "Deployment", "spec.template.spec"),
        ("batch/v1", "Job", "spec.template.spec"),
        ("batch/v1", "CronJob", "spec.jobTemplate.spec.template.spec"),
    ],
)
def test_core_kinds_have_a_pod_template_at_a_fixed_path(
    api_version: str, kind: str, path: str
) -> None:
    fields = with_value({}, path, SPEC)
    assert template_paths(api_version, kind, **fields) == [f"{kind} {path}"]
    assert is_core_workload({"apiVersion": api_version, "kind": kind}) is (kind != "Pod")


@pytest.mark.parametrize(
    ("api_version", "kind", "meant"),
    [
        ("v1", "Job", "batch/v1"),
        ("apps/v1", "Job", "batch/v1"),
        ("apps/v1beta1", "CronJob", "batch/v1"),
        ("v1", "Deployment", "apps/v1"),
        ("batch/v1", "DaemonSet", "apps/v1"),
        ("batch/v1", "Pod", "v1"),
        ("apps/v1", "ReplicationController", "v1"),
    ],
)
def test_a_workload_in_another_group_is_undecided(api_version: str, kind: str, meant: str) -> None:
    obj = {"apiVersion": api_version, "kind": kind, "spec": {"template": TEMPLATE}}
    with pytest.raises(MalformedObjectError) as caught:
        templates(obj)
    problem = f"is {api_version}, which has no kind {kind}; did you mean {meant}?"
    assert str(caught.value) == f"apiVersion: {problem}"


def test_a_kind_of_a_custom_group_may_have_the_name_of_a_core_workload() -> None:
    found = template_paths("batch.volcano.sh/v1alpha1", "Job", spec={"template": TEMPLATE})
    assert found == ["Job spec.template.spec"]


@pytest.mark.parametrize(
    ("kind", "spec", "paths"),
    [
        pytest.param(
            "PyTorchJob",
            {"pytorchReplicaSpecs": {r: {"template": TEMPLATE} for r in ("Master", "Worker")}},
            [
                "spec.pytorchReplicaSpecs.Master.template.spec",
                "spec.pytorchReplicaSpecs.Worker.template.spec",
            ],
            id="PyTorchJob",
        ),
        pytest.param(
            "RayCluster",
            {
                "headGroupSpec": {"template": TEMPLATE},
                "workerGroupSpecs": [{"replicas": 1}, {"template": TEMPLATE}],
            },
            ["spec.headGroupSpec.template.spec", "spec.workerGroupSpecs[1].template.spec"],
            id="RayCluster",
        ),
        pytest.param(
            "JobSet",
            {"replicatedJobs": [{"template": {"spec": {"template": TEMPLATE}}}]},
            ["spec.replicatedJobs[0].template.spec.template.spec"],
            id="JobSet",
        ),
        pytest.param(
            "InferenceService",
            {"predictor": {"containers": [{"name": "kserve-container", "image": "i"}]}},
            ["spec.predictor"],
            id="an inline Pod spec",
        ),
        pytest.param("Service", {"template": {"spec": SPEC}}, ["spec.template.spec"], id="Knative"),
        pytest.param(
            "Thing", {"containers": [{"image": 7}]}, ["spec"], id="an image that is a number"
        ),
        pytest.param("Thing", {"containers": []}, [], id="no containers"),
        pytest.param("Thing", {"containers": ["a", "b"]}, [], id="a list of names"),
        pytest.param("Thing", {"containers": [{"name": "a"}]}, [], id="containers without images"),
        pytest.param("Thing", None, [], id="no spec"),
    ],
)
def test_custom_resources_are_searched_by_structure(kind: str, spec: Any, paths: list[str]) -> None:
    assert template_paths("example.dev/v1", kind, spec=spec) == [f"{kind} {path}" for path in paths]
    assert not is_core_workload({"apiVersion": "example.dev/v1", "kind": kind})


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("v1", "ConfigMap"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ("kustomize.config.k8s.io/v1beta1", "Kustomization"),
        ("resource.k8s.io/v1", "ResourceClaim"),
    ],
)
def test_kinds_that_create_no_pods_have_no_templates(api_version: str, kind: str) -> None:
    assert template_paths(api_version, kind, spec={"template": TEMPLATE}) == []


def test_a_status_is_not_searched() -> None:
    assert template_paths("example.dev/v1", "Thing", spec={}, status={"template": TEMPLATE}) == []


def test_the_search_stops_at_the_maximum_depth() -> None:
    nested: Any = TEMPLATE
    for _ in range(5000):
        nested = {"deeper": nested}
    assert template_paths("example.dev/v1", "Thing", spec=nested) == []


@pytest.mark.parametrize(
    ("api_version", "trusted"),
    [("apps/v1", True), ("apps.kruise.io/v1beta1", False), ("v1", False)],
)
def test_only_a_daemon_set_in_group_apps_has_kind_daemon_set(
    api_version: str, trusted: bool
) -> None:
    template = {"spec": {"containers": [{"name": "agent", "image": "agent"}]}}
    daemon_set = {"apiVersion": api_version, "kind": "DaemonSet", "spec": {"template": template}}
    wrapper = {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "spec": {"components": [{"template": daemon_set}]},
    }
    (embedded,) = templates(wrapper)
    assert (embedded.kind == "DaemonSet") is trusted
    if api_version != "v1":
        (own,) = templates(daemon_set)
        assert (own.kind == "DaemonSet") is trusted


def test_an_embedded_pod_has_the_kind_of_its_wrapper() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"image": "a"}]}}
    wrapper = {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "spec": {"components": [{"template": pod}]},
    }
    assert [template.kind for template in templates(wrapper)] == ["AppWrapper"]


def test_a_finding_names_the_role_of_its_template() -> None:
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    template = {"template": {"spec": {**SPEC, "tolerations": tolerations}}}
    job: JSON = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "x"}}
    job["spec"] = {"pytorchReplicaSpecs": dict.fromkeys(("Master", "Worker"), template)}
    ray: JSON = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "x"}}
    ray["spec"] = {"headGroupSpec": template, "workerGroupSpecs": [{"groupName": "a", **template}]}
    web: JSON = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}}
    for obj, roles in (
        (job, ["the Master replicas", "the Worker replicas"]),
        (ray, ["the head", 'worker group "a"']),
        (web | {"spec": template}, [""]),
    ):
        policy = policies()["one taint"]
        found = decide(workload(obj, policy), policy).findings
        named = [finding.detail.partition("; this is about ")[2] for finding in found]
        assert named == roles
