"""Advice fits the Pod: a request is advised only where a request helps its author."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from cases.loading import Case, cases_of_check
from deciding import pod, policy, required
from policies.advice import is_base, of_others
from policies.context import Context
from policies.facts import Facts, Request
from policies.kubernetes.core_v1 import PodSpec
from policies.kubernetes.editor import clone
from policies.kubernetes.pod import Pod
from policies.kubernetes.template import Template
from typed import pod_of

WILDCARD = [{"operator": "Exists"}]
PINNED = required("kubernetes.io/hostname In gpu-1")
VOLUMES = [{"name": "a", "hostPath": {"path": "/opt"}}]


def advice(namespace: str = "storage", **spec: Any) -> str:
    context = Context(policy(), Request(namespace=namespace), Facts())
    return of_others("remove it", pod_of(pod(**spec)), context)


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeName": "gpu-1"},
        {"volumes": VOLUMES},
        {"hostPID": True},
        {"hostIPC": True},
        {"hostNetwork": True},
        {**PINNED, "tolerations": WILDCARD},
        {"nodeSelector": {"kubernetes.io/hostname": "gpu-1"}, "tolerations": WILDCARD},
    ],
)
def test_a_pod_that_works_on_its_node_is_for_the_cluster_administrator(spec: Any) -> None:
    exempt = "exempt namespace storage in the policy (exemptions.namespaces)"
    start = "If a platform of the cluster creates this Pod, have the cluster administrator "
    assert advice(**spec) == f"{start}{exempt}. Otherwise remove it"
    # An exemption of the namespace default would exempt all Pod authors.
    assert advice("default", **spec) == f"{start}add an exception for it. Otherwise remove it"


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"tolerations": WILDCARD},
        PINNED,
        {**PINNED, "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]},
        {**required("zone In a"), "tolerations": WILDCARD},
        {"volumes": [{"name": "a", "emptyDir": {}}]},
        {"hostPID": False, "hostIPC": False, "hostNetwork": False},
    ],
)
def test_another_pod_is_for_its_author(spec: Any) -> None:
    assert advice(**spec) == ""


def test_a_debug_pod_of_a_node_belongs_in_an_exempt_namespace() -> None:
    assert advice(nodeName="gpu-1", hostPID=True) == (
        "To debug the node, use an exempt namespace: kubectl debug node/gpu-1 "
        "--namespace=kube-system, or oc debug node/gpu-1 --to-namespace=kube-system"
    )


def test_owners_whose_template_is_judged_and_templates_without_their_request_are_known() -> None:
    for version in ("", "v1", "apps/v1", "batch/v1"):
        owner = {"apiVersion": version, "kind": "A", "name": "a", "controller": True}
        assert advice(metadata={"ownerReferences": [owner]}) == ""
    kinds = ("ClusterServingRuntime", "ClusterTrainingRuntime", "PodTemplate", "ServingRuntime")
    for kind in (*kinds, "TrainingRuntime"):
        assert is_base(Pod(PodSpec(), None, Template({}, ("spec",), kind)))
    for name in ("$job", "base", "flink-main-container", "spark-kubernetes-executor"):
        assert is_base(pod_of(pod({"name": name})))


JSON = dict[str, Any]
RULES = ("pool-trespass", "device-leak", "unrequested-gpu-runtime")
REQUEST = re.compile(r"[Ss]et (\S+): \d+ under resources\.limits(?! in place of \S+/)")


def labeled(key: str) -> Callable[[JSON], JSON]:
    def with_label(obj: JSON) -> JSON:
        metadata = obj["metadata"]
        return {**obj, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), key: "a"}}}

    return with_label


def owned(obj: JSON) -> JSON:
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "a", "controller": True}
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [owner]}}


def daemon_set(obj: JSON) -> JSON:
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "a"},
        "spec": {"template": {"metadata": obj["metadata"], "spec": obj["spec"]}},
    }


def pod_template(obj: JSON) -> JSON:
    template = {"metadata": obj["metadata"], "spec": obj["spec"]}
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "a"}} | {
        "template": template
    }


def requesting(obj: JSON) -> JSON:
    copy: JSON = clone(obj)
    for kind in ("containers", "initContainers"):
        for container in copy["spec"].get(kind, ()):
            resources = container.setdefault("resources", {})
            resources["limits"] = {**(resources.get("limits") or {}), "nvidia.com/gpu": 1}
            resources.pop("requests", None)
    return copy


TRAITS: dict[str, tuple[Callable[[JSON], JSON], tuple[str, ...]]] = {
    "an agent": (daemon_set, RULES),
    "a base template": (pod_template, RULES),
    "a dual Pod": (labeled("dual-pods.llm-d.ai/dual"), RULES),
    "a Pod of an operator": (owned, RULES),
    "a Pod in a queue": (labeled("kueue.x-k8s.io/queue-name"), ("pool-trespass",)),
}


def requests(case: Case, obj: JSON) -> list[str]:
    """Return the resources that advice about the object says to request."""
    said = (REQUEST.search(each.remediation) for each in case.decide(obj).findings)
    return [match[1] for match in said if match]


@pytest.mark.parametrize("trait", TRAITS)
def test_a_request_is_not_advised_where_it_helps_nobody(trait: str) -> None:
    change, rules = TRAITS[trait]
    advised = 0
    for case in (case for rule in rules for case in cases_of_check(rule)):
        if case.object["kind"] == "Pod" and not case.is_update and requests(case, case.object):
            advised += 1
            assert not requests(case, change(case.object)), case
    assert advised > 50


def test_a_request_is_not_advised_to_a_container_that_has_it() -> None:
    for case in cases_of_check("device-leak"):
        if case.object["kind"] == "Pod" and not case.is_update:
            assert "nvidia.com/gpu" not in requests(case, requesting(case.object)), case
