"""A field of the wrong type is named once, with its place and what belongs there."""

from __future__ import annotations

from typing import Any

import pytest

from policies.kubernetes.objects import MalformedObjectError
from policies.kubernetes.workload import Workload

JSON = dict[str, Any]


def pod(**spec: Any) -> JSON:
    containers = [{"name": "main", "image": "i"}]
    metadata = {"name": "p"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers} | spec,
    }


def container(**fields: Any) -> JSON:
    return pod(containers=[{"name": "main", "image": "i", **fields}])


def error_of(obj: Any) -> str:
    with pytest.raises(MalformedObjectError) as caught:
        check(obj)
    error = caught.value
    assert str(error) == (f"{error.path}: {error.problem}" if error.path else error.problem)
    return str(error)


def check(obj: Any) -> None:
    Workload(obj).pods()


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        pytest.param([], "must be a mapping, but is a list", id="a list"),
        pytest.param(None, "must be a mapping, but is nothing", id="nothing"),
        pytest.param(
            pod() | {"metadata": "p"}, "metadata: must be a mapping, but is a string", id="metadata"
        ),
        pytest.param(
            pod() | {"metadata": {"name": 7}},
            "metadata.name: must be a string, but is a whole number; put the value in quotes",
            id="a name",
        ),
        pytest.param(pod() | {"spec": None}, "spec: is missing", id="no spec"),
        pytest.param(pod() | {"spec": []}, "spec: must be a mapping, but is a list", id="a spec"),
        pytest.param(
            pod(containers={"name": "main"}),
            "spec.containers: must be a list, but is a mapping",
            id="containers",
        ),
        pytest.param(
            pod(containers=["main"]),
            "spec.containers[0]: must be a mapping, but is a string",
            id="a container",
        ),
        pytest.param(
            pod(initContainers=[{}, None]),
            "spec.initContainers[1]: must be a mapping, but is nothing",
            id="an init container",
        ),
        pytest.param(
            pod(tolerations="all"),
            "spec.tolerations: must be a list, but is a string",
            id="tolerations",
        ),
        pytest.param(
            pod(tolerations=[{"key": "gpu", "value": True}]),
            "spec.tolerations[0].value: must be a string, but is true or false; put the value in "
            "quotes",
            id="a toleration's value",
        ),
        pytest.param(
            pod(nodeSelector={"gpu": True}),
            "spec.nodeSelector[gpu]: must be a string, but is true or false; put the value in "
            "quotes",
            id="a label",
        ),
        pytest.param(
            pod(nodeSelector={7: "x"}),
            "spec.nodeSelector (a key): must be a string, but is a whole number; put the value in "
            "quotes",
            id="a label's key",
        ),
        pytest.param(
            pod(
                affinity={
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchExpressions": [{"values": "a"}]}]
                        }
                    }
                }
            ),
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            ".nodeSelectorTerms[0].matchExpressions[0].values: must be a list, but is a string",
            id="values",
        ),
        pytest.param(
            pod(hostPID="yes"),
            "spec.hostPID: must be true or false, but is a string",
            id="a switch",
        ),
        pytest.param(
            pod(securityContext={"runAsUser": "0"}),
            "spec.securityContext.runAsUser: must be a whole number, but is a string",
            id="a user",
        ),
        pytest.param(
            container(env=[{"name": "MODE", "value": 1.5}]),
            "spec.containers[0].env[0].value: must be a string, but is a number with a fraction; "
            "put the value in quotes",
            id="a variable",
        ),
        pytest.param(
            container(securityContext={"capabilities": {"drop": "ALL"}}),
            "spec.containers[0].securityContext.capabilities.drop: must be a list, but is a string",
            id="capabilities",
        ),
        pytest.param(
            container(resources={"limits": ["nvidia.com/gpu"]}),
            "spec.containers[0].resources.limits: must be a mapping, but is a list",
            id="limits",
        ),
        pytest.param(
            container(resources={"limits": {"nvidia.com/gpu": "two"}}),
            "spec.containers[0].resources.limits[nvidia.com/gpu]: 'two' is not a quantity; write a "
            'number with an optional suffix, for example 1, "500m" or "16Gi"',
            id="a quantity",
        ),
        pytest.param(
            container(resources={"requests": {"cpu": {}}}),
            "spec.containers[0].resources.requests[cpu]: {} is not a quantity; write a number with "
            'an optional suffix, for example 1, "500m" or "16Gi"',
            id="a mapping for a quantity",
        ),
        pytest.param(
            pod(resources={"limits": {"cpu": "much"}}),
            "spec.resources.limits[cpu]: 'much' is not a quantity; write a number with an optional "
            'suffix, for example 1, "500m" or "16Gi"',
            id="a quantity of the Pod",
        ),
        pytest.param(
            pod(ephemeralContainers=[{"resources": {"limits": {"cpu": True}}}]),
            "spec.ephemeralContainers[0].resources.limits[cpu]: True is not a quantity; write a "
            'number with an optional suffix, for example 1, "500m" or "16Gi"',
            id="a quantity of a debug container",
        ),
        pytest.param(
            {
                "apiVersion": "batch/v1",
                "kind": "CronJob",
                "spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": 1}}}}},
            },
            "spec.jobTemplate.spec.template.spec.containers: must be a list, but is a whole number",
            id="in a template",
        ),
        pytest.param(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "spec": {"template": {"metadata": {"annotations": []}, "spec": {}}},
            },
            "spec.template.metadata.annotations: must be a mapping, but is a list",
            id="in a template's metadata",
        ),
    ],
)
def test_a_field_of_the_wrong_type_is_reported_with_its_path(obj: Any, text: str) -> None:
    assert error_of(obj) == text


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(
            pod(containers=None, tolerations=None, nodeSelector=None, affinity=None), id="null"
        ),
        pytest.param(pod(containers=[]), id="no containers"),
        pytest.param(
            pod(futureField={"containers": "x"}, volumes=[{"name": "v", "csi": 7}]), id="unread"
        ),
        pytest.param(container(command="not a list", ports=[{"protocol": 7}]), id="unread deeper"),
        pytest.param(
            container(resources={"limits": {"cpu": 1, "memory": "1Gi", "x/y": None}}), id="counts"
        ),
        pytest.param(pod() | {"metadata": None}, id="no metadata"),
        pytest.param(pod() | {"status": {"phase": 7}}, id="a status"),
        pytest.param({"kind": 7, "apiVersion": [], "spec": 1}, id="no object of Kubernetes"),
        pytest.param({}, id="nothing"),
    ],
)
def test_fields_that_no_rule_reads_may_have_any_type(obj: JSON) -> None:
    check(obj)


def test_a_null_label_value_is_accepted() -> None:
    check(pod(nodeSelector={"gpu": None}))
