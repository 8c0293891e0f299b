"""How many Pods of a workload run at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from msgspec.structs import replace

from each import each
from policies.kubernetes.gangs import (
    fewest_pods,
    group_of,
    is_gang,
    is_in_turns,
    pods_at_a_time,
    together,
)
from policies.kubernetes.template import Template
from webhook.cluster.gangs import read_gangs
from webhook.tools.custom_resources import find

JSON = dict[str, Any]

TEMPLATE: JSON = {
    "metadata": {"labels": {"app": "train"}},
    "spec": {
        "containers": [
            {"name": "a", "image": "train", "resources": {"limits": {"nvidia.com/gpu": 1}}}
        ]
    },
}


def filled(value: Any, template: JSON) -> Any:
    if isinstance(value, dict):
        return {key: filled(item, template) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, template) for item in value]
    return template if value == "T" else value


def test_each_kind_runs_its_number_of_pods_at_a_time() -> None:
    cases: list[JSON] = yaml.safe_load(Path(__file__).with_name("gangs.yaml").read_text())
    assert len({case["kind"].rpartition(" ")[2] + case["kind"][:5] for case in cases}) >= 15

    def counts(case: JSON) -> None:
        version, kind = case["kind"].split()
        terms = {"requiredDuringSchedulingIgnoredDuringExecution": case.get("affinity")}
        template = {
            "metadata": TEMPLATE["metadata"] | {"annotations": case.get("of_pods")},
            "spec": TEMPLATE["spec"] | {"affinity": {"podAffinity": terms}},
        }
        obj = {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": "train", "annotations": case.get("annotations")},
            "spec": filled(case["spec"], template),
            "status": case.get("status"),
        }
        assert is_gang(obj)
        parts = [replace(part, root=obj) for part in find(obj).templates]
        found = [pods_at_a_time(part) for part in parts]
        assert [at_a_time and at_a_time.pods for at_a_time in found] == case["pods"]
        assert fewest_pods(obj) == case.get("fewest")
        known = [(part, own) for part, own in zip(parts, found, strict=True) if own]
        of_parts = [together(part, own.pods, own.replicas) for part, own in known]
        assert [list(each) for own in of_parts for each in own] == case.get("together", [])

    each(cases, counts)


def test_parts_that_wait_for_others_do_not_run_at_a_time() -> None:
    parts = [{"name": "prepare"}, {"name": "train", "dependsOn": [{"name": "prepare"}]}]
    assert is_in_turns({"spec": {"replicatedJobs": parts}})
    assert not is_in_turns({"spec": {"replicatedJobs": parts[:1]}})


def test_pods_name_their_group_in_four_ways() -> None:
    ways: list[JSON] = [
        {"spec": {"schedulingGroup": {"podGroupName": "g"}}},
        {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}},
        {"metadata": {"labels": {"pod-group.scheduling.sigs.k8s.io": "g"}}},
        {"metadata": {"annotations": {"scheduling.k8s.io/group-name": "g"}}},
    ]
    assert {group_of(Template(raw, ("spec",), "Pod")) for raw in ways} == {"g"}
    assert not group_of(Template({"spec": {}}, ("spec",), "Pod"))


def test_groups_workloads_and_quotas_are_read() -> None:
    policy = {"schedulingPolicy": {"gang": {"minCount": 4}}}
    about = {"controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "train"}}

    def obj(version: str, kind: str, spec: JSON) -> tuple[str, JSON]:
        metadata = {"name": version.partition("/")[0]}
        return "ml", {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}

    gangs, quotas = read_gangs(
        [
            obj("scheduling.k8s.io/v1alpha3", "PodGroup", policy),
            obj("scheduling.x-k8s.io/v1alpha1", "PodGroup", {"minMember": 5}),
            obj("scheduling.volcano.sh/v1beta1", "PodGroup", {"minMember": 6}),
            obj("scheduling.k8s.io/v1beta1", "Workload", {**about, "podGroupTemplates": [policy]}),
            obj("kueue.x-k8s.io/v1beta1", "Workload", {"podSets": []}),
            obj("scheduling.k8s.io/v1", "PodGroup", {"schedulingPolicy": {"basic": {}}}),
            obj("v1", "ResourceQuota", {"hard": {"requests.nvidia.com/gpu": "16", "pods": "4"}}),
            obj(
                "v1",
                "ResourceQuota",
                {
                    "hard": {
                        "requests.nvidia.com/gpu": 8,
                        "gpu.nvidia.com.deviceclass.resource.k8s.io/devices": 2,
                        "requests.amd.com/gpu": "many",
                    }
                },
            ),
            obj("v1", "ResourceQuota", {"scopes": ["BestEffort"], "hard": {"requests.a/b": 0}}),
        ]
    )
    assert gangs == {
        ("ml", "scheduling.k8s.io"): 4,
        ("ml", "scheduling.x-k8s.io"): 5,
        ("ml", "scheduling.volcano.sh"): 6,
        ("ml", "Job/train"): 4,
    }
    claimed = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
    assert quotas == {"ml": {"nvidia.com/gpu": 8, claimed: 2}}
