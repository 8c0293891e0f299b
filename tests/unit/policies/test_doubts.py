"""What the author of a valid policy likely does not mean."""

from __future__ import annotations

from typing import Any

import yaml

from policies.document import parse_policy
from policies.doubts import doubts
from policies.shipped import DEFAULT, PRESETS
from specs import default_spec, fence_policy

JSON = dict[str, Any]
POOL: JSON = {
    "name": "nvidia",
    "resources": ["nvidia.com/gpu"],
    "taints": [{"key": "nvidia.com/gpu"}],
    "nodeSelector": {"nvidia.com/gpu.present": "true"},
}


def said(**fields: Any) -> list[str]:
    """Return the doubts about the default policy with other fields."""
    policy = parse_policy(fence_policy({**default_spec(), **fields}))
    return [str(doubt) for doubt in doubts(policy)]


def of_pool(**fields: Any) -> list[str]:
    return said(pools=[{**POOL, **fields}])


def exception(**fields: Any) -> list[str]:
    return said(exceptions=[{"namespaces": ["ml"], "reason": "moves", **fields}])


def test_the_shipped_policies_raise_no_doubt() -> None:
    for file in (DEFAULT, *PRESETS.glob("*.yaml")):
        policy = parse_policy(yaml.safe_load(file.read_text()))
        assert not [*doubts(policy)], file


def test_each_kind_of_doubt_names_the_field_the_effect_and_what_to_do() -> None:
    every_pod = {"key": "node.kubernetes.io/not-ready"}
    enforced = {"action": "enforce"}
    audited = {"namespaces": ["*"], "mode": "audit"}
    expected: dict[str, tuple[list[str], str]] = {
        "a taint of every Pod": (
            of_pool(taints=[every_pod]),
            "spec.pools[0].taints[0]: every Pod tolerates node.kubernetes.io/not-ready",
        ),
        "no fence": (
            of_pool(taints=[{"key": "a", "effect": "PreferNoSchedule"}]),
            "spec.pools[0].taints: no taint of pool nvidia keeps Pods off its nodes",
        ),
        "a label of every node": (
            of_pool(
                nodeSelector={},
                matchExpressions=[{"key": "kubernetes.io/hostname", "operator": "Exists"}],
            ),
            "spec.pools[0].nodeSelector: every node has kubernetes.io/hostname",
        ),
        "nodes of two pools": (
            said(
                pools=[
                    POOL,
                    {
                        **POOL,
                        "name": "h100",
                        "nodeSelector": {"reserved": "h100"},
                        "largestRequest": 8,
                    },
                ]
            ),
            "spec.pools[0]: no label tells pools nvidia and h100 apart: a node can belong to both",
        ),
        "a whole vendor": (
            of_pool(resources=["nvidia.com/*"]),
            "spec.pools[0].resources: nvidia.com/* covers every resource of the vendor",
        ),
        "a misspelled resource": (
            of_pool(resources=["nvidia.com/gpus"]),
            "nvidia.com/gpus is no device that is known. If you mean nvidia.com/gpu, write that",
        ),
        "a misspelled class": (
            of_pool(deviceClasses=["gpu.nvida.com"]),
            "gpu.nvida.com is no DeviceClass that is known. If you mean gpu.nvidia.com, write that",
        ),
        "bytes": (
            of_pool(requires=[{**enforced, "maxMemoryPerDevice": 64}]),
            "spec.pools[0].requires[0].maxMemoryPerDevice: 64 is a number of bytes",
        ),
        "a home of bytes": (
            said(hardening={"home": 20}),
            "spec.hardening.home: 20 is a number of bytes, and too small for any Pod. Write 20Gi",
        ),
        "a home of a wrong unit": (
            said(hardening={"home": "10Mi"}),
            "spec.hardening.home: 10Mi is too small for any Pod. Write a larger size, such as 20Gi",
        ),
        "a profile that warns about nothing": (
            said(hardening={"warn": "restricted"}),
            "spec.hardening.warn: restricted has no effect, because the level, restricted, denies",
        ),
        "a user namespace that the profile does not know": (
            of_pool(hardening={"hostUsers": False, "version": "v1.34"}),
            "spec.pools[0].hardening: denies GPU Pods that set no user, because hostUsers: false",
        ),
        "no Pod": (
            of_pool(largestRequest=4, requires=[{**enforced, "minDevices": 8}]),
            "spec.pools[0].requires[0].minDevices: 8 is more than largestRequest, 4",
        ),
        "no class": (
            of_pool(requires=[{**enforced, "priorityClasses": ["system-node-critical"]}]),
            "spec.pools[0].requires[0].priorityClasses: system-priority denies",
        ),
        "a check without its mutation": (
            said(rules={"restricted-security-context": "warn", "unrestricted-gpu-pod": "enforce"}),
            "spec.rules[unrestricted-gpu-pod]: enforces, and restricted-security-context, which",
        ),
        "an exception from the whole profile": (
            said(
                exceptions=[{"rules": ["unrestricted-gpu-pod"], "namespaces": ["a"], "reason": "r"}]
            ),
            "spec.exceptions[0]: accepts the whole profile: privileged Pods",
        ),
        "no rule": (
            said(defaultAction="warn", rules={}),
            "spec.rules: no rule denies anything",
        ),
        "a user with a wildcard": (
            said(exemptions={"namespaces": ["gpu-operator"], "usernames": ["ci-*"]}),
            "spec.exemptions.usernames: 'ci-*' is no name of a user",
        ),
        "a group": (
            said(exemptions={"namespaces": ["a"], "usernames": ["system:serviceaccounts:ci"]}),
            "spec.exemptions.usernames: 'system:serviceaccounts:ci' is a group",
        ),
        "a controller": (
            said(
                exemptions={
                    "namespaces": ["a"],
                    "usernames": ["system:serviceaccount:kube-system:replicaset-controller"],
                }
            ),
            "creates the Pods of many workloads",
        ),
        "no exemption": (
            said(exemptions={}),
            "spec.exemptions.namespaces: no namespace is exempt",
        ),
        "an override of another mode": (
            said(
                mode="audit",
                overrides=[{"namespaces": ["a"], "rules": {"device-leak": "enforce"}}],
            ),
            "spec.overrides[0].rules: device-leak cannot enforce where the mode is audit",
        ),
        "an override without effect": (
            said(overrides=[{"namespaces": ["a"], "mode": "warn"}, audited]),
            "spec.overrides[0]: has no effect",
        ),
        "an exception from everything": (
            exception(namespaces=["*"]),
            "spec.exceptions[0]: covers every finding in every namespace, without an end",
        ),
        "a * in front": (
            exception(names=["*-web"]),
            "spec.exceptions[0]: names '*-web': * counts at the end only",
        ),
        "a misspelled kind": (
            exception(kinds=["Deployments", "Pod"]),
            "spec.exceptions[0]: has the kind Deployments, which Kubernetes does not have. Did you",
        ),
        "a workload without its Pods": (
            exception(kinds=["Deployment"]),
            "spec.exceptions[0]: covers a Deployment, and not the Pods that it makes",
        ),
        "an outage": (
            said(failurePolicy="Ignore"),
            "spec.failurePolicy: while no replica answers, GPU Pods are created without",
        ),
    }
    for name, (found, wanted) in expected.items():
        assert [one for one in found if wanted in one], (name, found)
        assert len(found) == 1 or name == "no rule", (name, found)


def test_what_is_meant_raises_no_doubt() -> None:
    steps = dict.fromkeys(("restricted-security-context", "pool-exclusion"), "enforce")
    assert not said(defaultAction="warn", rules={**steps, "unrestricted-gpu-pod": "enforce"})
    assert not said(rules={"restricted-security-context": "warn"}, hardening={"level": "baseline"})
    warned = {"namespaces": ["a"], "hardening": {"warn": "restricted"}}
    assert not said(pools=[{**POOL, "hardening": {"level": "baseline"}}], overrides=[warned])
    assert not said(hardening={"hostUsers": False, "version": "v1.35", "warn": "off"})
    assert not exception(kinds=["Deployment", "ReplicaSet", "Pod"], names=["web", "web-*"])
    assert not exception(kinds=["PyTorchJob", "Pod"])
    assert not of_pool(resources=["nvidia.com/gpu", "example.com/fpga"])
    assert not said(
        overrides=[{"namespaces": ["*"], "mode": "warn"}, {"namespaces": ["a"], "mode": "enforce"}]
    )
