"""A field of the wrong type is named once, with its place and what belongs there."""

from __future__ import annotations

from typing import Any

import pytest

from policies.kubernetes.objects import MalformedObjectError
from policies.kubernetes.workload import Workload
from reviewing import gpu_pod, with_value

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
        pytest.param(pod() | {"spec": None}, "spec: is missing", id="no spec"),
        pytest.param(pod() | {"spec": []}, "spec: must be a mapping, but is a list", id="a spec"),
        pytest.param(
            pod(initContainers=[{}, None]),
            "spec.initContainers[1]: must be a mapping, but is nothing",
            id="an init container",
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
            container(env=[{"name": "MODE", "value": 1.5}]),
            "spec.containers[0].env[0].value: must be a string, but is a number with a fraction; "
            "put the value in quotes",
            id="a variable",
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
def test_a_malformed_object_is_reported_with_its_problem(obj: Any, text: str) -> None:
    assert error_of(obj) == text


CONTAINER = "spec.containers.0"
CONTEXT = f"{CONTAINER}.securityContext"
TERM = (
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.0"
)

# Dotted path to a value that does not belong there.
WRONG: list[tuple[str, Any]] = [
    ("metadata", []),
    ("metadata.name", 5),
    ("metadata.generateName", ["web-"]),
    ("metadata.namespace", {}),
    ("metadata.annotations", ["a"]),
    ("metadata.annotations.a", True),
    ("metadata.deletionTimestamp", 5),
    ("metadata.ownerReferences", {}),
    ("metadata.ownerReferences.0", "DaemonSet"),
    ("metadata.ownerReferences.0.kind", 1),
    ("metadata.ownerReferences.0.controller", "true"),
    ("spec", []),
    ("spec", "none"),
    ("spec.containers", {}),
    ("spec.containers.0", "train"),
    (f"{CONTAINER}.name", 5),
    (f"{CONTAINER}.image", ["train:1"]),
    (f"{CONTAINER}.env", {"NVIDIA_VISIBLE_DEVICES": "all"}),
    (f"{CONTAINER}.env.0", "NVIDIA_VISIBLE_DEVICES=all"),
    (f"{CONTAINER}.env.0.name", 1),
    (f"{CONTAINER}.env.0.value", 1),
    (f"{CONTAINER}.env.0.valueFrom", "secret"),
    (f"{CONTAINER}.ports", {}),
    (f"{CONTAINER}.ports.0.hostPort", "80"),
    (f"{CONTAINER}.resources", []),
    (f"{CONTAINER}.resources.limits", ["nvidia.com/gpu"]),
    (f"{CONTAINER}.resources.requests", 1),
    (CONTEXT, []),
    (f"{CONTEXT}.privileged", "true"),
    (f"{CONTEXT}.allowPrivilegeEscalation", "false"),
    (f"{CONTEXT}.capabilities", ["ALL"]),
    (f"{CONTEXT}.capabilities.add", "SYS_ADMIN"),
    (f"{CONTEXT}.capabilities.drop.0", 1),
    (f"{CONTEXT}.procMount", 1),
    (f"{CONTEXT}.runAsNonRoot", "yes"),
    (f"{CONTEXT}.runAsUser", "0"),
    (f"{CONTEXT}.runAsUser", 1.5),
    (f"{CONTEXT}.seccompProfile", "RuntimeDefault"),
    (f"{CONTEXT}.seccompProfile.type", 1),
    (f"{CONTEXT}.appArmorProfile", "Unconfined"),
    (f"{CONTEXT}.seLinuxOptions.type", 1),
    (f"{CONTEXT}.windowsOptions.hostProcess", "true"),
    (f"{CONTAINER}.livenessProbe", "http"),
    (f"{CONTAINER}.livenessProbe.httpGet.host", 1),
    (f"{CONTAINER}.readinessProbe.tcpSocket.host", 1),
    (f"{CONTAINER}.startupProbe.httpGet", "localhost"),
    (f"{CONTAINER}.lifecycle", []),
    (f"{CONTAINER}.lifecycle.postStart.httpGet.host", {}),
    ("spec.initContainers", {}),
    ("spec.initContainers.0.image", 1),
    ("spec.ephemeralContainers", "debug"),
    ("spec.ephemeralContainers.0.securityContext.privileged", 1),
    ("spec.securityContext", []),
    ("spec.securityContext.runAsUser", "root"),
    ("spec.securityContext.runAsGroup", "root"),
    ("spec.securityContext.fsGroup", "root"),
    ("spec.securityContext.sysctls", {"kernel.shm_rmid_forced": "1"}),
    ("spec.securityContext.sysctls.0.name", 1),
    ("spec.hostNetwork", "true"),
    ("spec.hostPID", 1),
    ("spec.hostIPC", "no"),
    ("spec.hostUsers", "no"),
    ("spec.nodeName", 5),
    ("spec.nodeSelector", ["gpu"]),
    ("spec.nodeSelector.gpu", True),
    ("spec.tolerations", {"key": "nvidia.com/gpu"}),
    ("spec.tolerations.0", "nvidia.com/gpu"),
    ("spec.tolerations.0.key", 1),
    ("spec.tolerations.0.operator", True),
    ("spec.tolerations.0.value", True),
    ("spec.tolerations.0.effect", ["NoSchedule"]),
    ("spec.affinity", []),
    ("spec.affinity.nodeAffinity", "required"),
    (TERM.removesuffix(".0"), {}),
    (TERM, "gpu=true"),
    (f"{TERM}.matchExpressions", {}),
    (f"{TERM}.matchExpressions.0.key", 1),
    (f"{TERM}.matchExpressions.0.operator", 1),
    (f"{TERM}.matchExpressions.0.values", "true"),
    (f"{TERM}.matchExpressions.0.values.0", True),
    (f"{TERM}.matchFields", "metadata.name"),
    ("spec.resourceClaims", {"gpu": "one"}),
    ("spec.resourceClaims.0", "gpu"),
    ("spec.resourceClaims.0.resourceClaimName", 1),
    ("spec.resourceClaims.0.resourceClaimTemplateName", 1),
    ("spec.runtimeClassName", 5),
    ("spec.os", "linux"),
    ("spec.os.name", 1),
    ("spec.volumes", {}),
    ("spec.volumes.0", "/dev/nvidia0"),
    ("spec.volumes.0.name", 1),
    ("spec.volumes.0.hostPath", "/dev/nvidia0"),
    ("spec.volumes.0.hostPath.path", 1),
]


def name(value: Any) -> str:
    return f"{value[0]}-{type(value[1]).__name__}"


def notation(path: str) -> str:
    """Return a dotted path as an API server would print it."""
    text = ""
    for step in path.split("."):
        is_free = text.endswith((".annotations", ".nodeSelector"))
        text += f"[{step}]" if step.isdigit() or is_free else f".{step}"
    return text.removeprefix(".")


@pytest.mark.parametrize("wrong", WRONG, ids=name)
def test_a_field_of_the_wrong_type_is_reported_with_its_path(wrong: tuple[str, Any]) -> None:
    path, value = wrong
    problem, expectation = error_of(with_value(gpu_pod(), path, value)).split(": ")
    assert problem == notation(path)
    assert expectation.startswith("must be ")


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
        pytest.param(container(workingDir=["x"], ports=[{"protocol": 7}]), id="unread deeper"),
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
