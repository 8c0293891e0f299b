"""A field of the wrong type is named once, with its place and what belongs there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import inspect

from deciding import pod
from each import each
from policies.kubernetes.core_v1 import PodTemplate
from policies.kubernetes.objects import MalformedObjectError
from policies.kubernetes.workload import Workload
from reviewing import gpu_pod, with_value

JSON = dict[str, Any]


def container(**fields: Any) -> JSON:
    return pod(fields)


def error_of(obj: Any) -> str:
    with pytest.raises(MalformedObjectError) as caught:
        Workload(obj).pods()
    error = caught.value
    assert str(error) == (f"{error.path}: {error.problem}" if error.path else error.problem)
    return str(error)


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


def wrong_values(type_: inspect.Type, path: str, shown: str) -> Iterator[tuple[str, str, Any]]:
    """Yield the path of each typed field, the path as API servers print it, and a wrong value."""
    match type_:
        case inspect.UnionType(types):
            yield from wrong_values(types[0], path, shown)
        case inspect.StructType(fields=fields):
            yield path, shown, "x"
            for field in fields:
                name = f"{'.' if path else ''}{field.encode_name}"
                yield from wrong_values(field.type, path + name, shown + name)
        case inspect.ListType(item_type=item):
            yield path, shown, {}
            yield from wrong_values(item, f"{path}.0", f"{shown}[0]")
        case inspect.DictType(value_type=value):
            yield path, shown, []
            if not path.endswith("volumes.0"):  # Its sources are of any type.
                yield from wrong_values(value, f"{path}.a", f"{shown}[a]")
        case inspect.StrType():
            yield path, shown, 5
        case inspect.IntType() | inspect.BoolType():
            yield path, shown, "x"


WRONG = [
    *wrong_values(inspect.type_info(PodTemplate), "", ""),
    ("spec.volumes.0.name", "spec.volumes[0].name", 1),
    ("spec.volumes.0.hostPath", "spec.volumes[0].hostPath", "/dev/nvidia0"),
    ("spec.volumes.0.hostPath.path", "spec.volumes[0].hostPath.path", 1),
]


def test_fields_of_the_wrong_type_are_reported_with_their_paths() -> None:
    def reported(wrong: tuple[str, str, Any]) -> None:
        path, shown, value = wrong
        problem, expectation = error_of(with_value(gpu_pod(), path, value)).split(": ")
        assert problem == shown
        assert expectation.startswith("must be ")

    each(WRONG[1:], reported)
