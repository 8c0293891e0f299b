"""Devices that LimitRanges give to containers count for Pods, in files as in a cluster."""

from __future__ import annotations

from typing import Any

import yaml

import deciding
from dumped import manifests
from each import each
from policies.facts import Request
from policies.kubernetes.core_v1 import ResourceRequirements
from webhook.cluster.limits import defaults_among
from webhook.tools.cli.evaluate import evaluate

POLICY = deciding.policy()

GPU = "nvidia.com/gpu: 1"
PLAIN = "containers: [{name: c, image: i}]"
TOLERANT = f"tolerations: [{{key: nvidia.com/gpu, operator: Exists}}], {PLAIN}"
ROOT = "containers: [{name: c, image: i, securityContext: {privileged: true}}]"
NONE = "containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 0}}}]"
CPU = "containers: [{name: c, image: i, resources: {limits: {cpu: 1}}}]"


def limits(*items: str, namespace: str = "default") -> str:
    metadata = f"metadata: {{name: l, namespace: {namespace}}}"
    return (
        f"{{apiVersion: v1, kind: LimitRange, {metadata}, spec: {{limits: [{', '.join(items)}]}}}}"
    )


def item(fields: str, type_: str = "Container") -> str:
    return f"{{type: {type_}, {fields}}}"


def pod(spec: str) -> str:
    return f"{{apiVersion: v1, kind: Pod, metadata: {{name: a}}, spec: {{{spec}}}}}"


def deployment(spec: str) -> str:
    template = f"spec: {{template: {{spec: {{{spec}}}}}}}"
    return f"{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: a}}, {template}}}"


DEFAULT = limits(item(f"default: {{{GPU}}}"))
OF_ML = limits(item(f"default: {{{GPU}}}"), namespace="ml")
ODD = limits("1", item("default: {nvidia.com/gpu: a}"), item("max: 1"))
CASES: dict[str, tuple[str, str, str]] = {
    "a Pod gets a default": (DEFAULT, pod(PLAIN), "mutated"),
    "the most is a default": (limits(item(f"max: {{{GPU}}}")), pod(PLAIN), "mutated"),
    "a limit of the CPU stays": (DEFAULT, pod(CPU), "mutated"),
    "a Pod with a default may tolerate": (DEFAULT, pod(TOLERANT), "mutated"),
    "a GPU Pod by default is restricted": (DEFAULT, pod(ROOT), "denied"),
    "a Pod says that it needs none": (DEFAULT, pod(NONE), "allowed"),
    "the Pods of a workload get a default": (DEFAULT, deployment(PLAIN), "mutated"),
    "the Pods of a workload are restricted": (DEFAULT, deployment(ROOT), "denied"),
    # API servers judge the workload before its Pods exist.
    "a workload that tolerates": (DEFAULT, deployment(TOLERANT), "denied"),
    "of another namespace": (OF_ML, pod(PLAIN), "allowed"),
    "of Pods as a whole": (limits(item(f"max: {{{GPU}}}", "Pod")), pod(PLAIN), "allowed"),
    "of the CPU": (limits(item("default: {cpu: 1}")), pod(PLAIN), "allowed"),
    "of none": (limits(item("default: {nvidia.com/gpu: 0}")), pod(PLAIN), "allowed"),
    "an odd one": (ODD, pod(PLAIN), "allowed"),
}  # fmt: skip


def verdict(*documents: str) -> tuple[str, list[Any]]:
    read = manifests(map(yaml.safe_load, documents))
    *_, last = evaluate(read, POLICY, Request())
    return last.verdict, last.operations


def test_devices_by_default_make_gpu_pods() -> None:
    def holds(name: str) -> None:
        ranges, written, expected = CASES[name]
        assert verdict(ranges, written)[0] == expected

    each(CASES, holds)


def test_nothing_that_a_limit_range_adds_is_a_change_of_gpufence() -> None:
    _, operations = verdict(DEFAULT, pod(PLAIN))
    assert operations
    assert not [each for each in operations if "resources" in each.path]


def test_of_several_limit_ranges_the_first_counts() -> None:
    spec = {
        "limits": [{"type": "Container", "default": {"a.b/c": 2}, "defaultRequest": {"a.b/c": 1}}]
    }
    other = {"limits": [{"type": "Container", "max": {"a.b/c": 8, "a.b/d": 1}}]}
    objects = [
        ("ml", {"apiVersion": "v1", "kind": "LimitRange", "spec": each}) for each in (spec, other)
    ]
    both = ResourceRequirements({"a.b/c": 2, "a.b/d": 1}, {"a.b/c": 1, "a.b/d": 1})
    assert defaults_among(objects) == {"ml": both}
