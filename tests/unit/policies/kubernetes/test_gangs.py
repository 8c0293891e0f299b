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


def filled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: filled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item) for item in value]
    return TEMPLATE if value == "T" else value


def test_each_kind_runs_its_number_of_pods_at_a_time() -> None:
    cases: list[JSON] = yaml.safe_load(Path(__file__).with_name("gangs.yaml").read_text())
    assert len({case["kind"].rpartition(" ")[2] + case["kind"][:5] for case in cases}) >= 15

    def counts(case: JSON) -> None:
        version, kind = case["kind"].split()
        obj = {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": "train", "annotations": case.get("annotations")},
            "spec": filled(case["spec"]),
            "status": case.get("status"),
        }
        assert is_gang(obj)
        found = [pods_at_a_time(replace(part, root=obj)) for part in find(obj).templates]
        assert [at_a_time and at_a_time.pods for at_a_time in found] == case["pods"]
        assert fewest_pods(obj) == case.get("fewest")

    each(cases, counts)


def test_pods_have_to_run_in_one_domain_of_a_topology() -> None:
    kueue = "kueue.x-k8s.io/podset-"
    job = {"parallelism": 4, "template": TEMPLATE}
    jobs = [{"name": "a", "replicas": 3, "template": {"spec": job}}]
    group = {"replicas": 3, "leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE}}
    job_set, lws, plain = (
        ("JobSet", "jobset.x-k8s.io/v1alpha2", {"replicatedJobs": jobs}),
        ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", group),
        ("Job", "batch/v1", job),
    )
    own = {"labelSelector": {"matchLabels": {"app": "train"}}, "topologyKey": "rack"}
    is_train = {"key": "app", "operator": "In", "values": ["train"]}
    no_other = {"key": "app", "operator": "NotIn", "values": ["other"]}
    cases: list[Any] = [
        (job_set, {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}, {}, [("rack", 4, 3)]),
        (lws, {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}, {}, [("rack", 2, 3)]),
        (job_set, {}, {f"{kueue}required-topology": "rack"}, [("rack", 12, 1)]),
        (lws, {}, {f"{kueue}required-topology": "rack"}, [("rack", 2, 1)]),
        (plain, {}, {f"{kueue}required-topology": "rack"}, [("rack", 4, 1)]),
        (plain, {}, {f"{kueue}preferred-topology": "rack"}, []),
        (
            plain,
            {},
            {f"{kueue}slice-required-topology": "rack", f"{kueue}slice-size": "2"},
            [("rack", 2, 1)],
        ),
        (job_set, {}, [own], [("rack", 12, 1)]),
        (plain, {}, [{**own, "matchLabelKeys": ["job"]}], []),
        (plain, {}, [{**own, "labelSelector": {"matchLabels": {"job-name": "train"}}}], []),
        (plain, {}, [{**own, "labelSelector": {"matchExpressions": [is_train]}}], [("rack", 4, 1)]),
        (plain, {}, [{**own, "labelSelector": {"matchExpressions": [no_other]}}], []),
        (plain, {}, [{"topologyKey": "rack"}], []),
    ]
    for (kind, version, spec), of_object, given, expected in cases:
        terms = given if isinstance(given, list) else []
        affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        obj = {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": "train", "annotations": of_object},
            "spec": spec,
        }
        raw = {
            "metadata": {**TEMPLATE["metadata"], "annotations": {} if terms else given},
            "spec": {**TEMPLATE["spec"], "affinity": affinity},
        }
        [template] = find(obj).templates
        at_a_time = pods_at_a_time(replace(template, root=obj))
        assert at_a_time
        assert [
            *together(replace(template, root=obj, raw=raw), at_a_time.pods, at_a_time.replicas)
        ] == expected, given


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
