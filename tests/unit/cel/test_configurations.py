"""The webhook configurations, as far as a policy and a registration decide on them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies.device_injection import CUDA_VERSION, DEVICE_MOUNTS, NO_DEVICES
from policies.engine import validate
from policies.finding import Mode
from policies.kubernetes.claims import IMPLICIT_RESOURCE_PREFIX
from policies.kubernetes.kinds import CustomWorkloads
from policies.policy import FailurePolicy, Policy
from policies.pool_nodes import EVERY_NODE
from policies.reach import DAEMON_SET_CONTROLLERS, MIRROR_ANNOTATION
from policies.vendors import known_vendors
from policies.vocabulary import ANNOTATIONS, device_files, visible_devices_variables
from reviewing import default_policy, plain_pod
from specs import default_spec, policy_of
from webhook.controller.text.objects import (
    MERGING_GROUPS,
    Registration,
    admission_policies,
    configurations,
)
from webhook.tools.custom_resources import COMPOSERS

CUSTOM = "custom-workloads.gpufence.dev"


def webhooks(policy: Policy, **fields: Any) -> dict[str, dict[str, Any]]:
    """The validating webhooks, by name."""
    _, validating = configurations(policy, Registration(url="https://a:1", **fields))
    return {webhook["name"]: webhook for webhook in validating["webhooks"]}


@pytest.mark.parametrize("choice", ["Fail", "Ignore"])
def test_the_policy_sets_the_failure_policy_for_pods_and_workloads(choice: FailurePolicy) -> None:
    policy = replace(default_policy(), failure_policy=choice)
    mutating, _ = configurations(policy, Registration(url="https://a:1"))
    assert mutating["webhooks"][0]["failurePolicy"] == choice
    found = {name: webhook["failurePolicy"] for name, webhook in webhooks(policy).items()}
    apart = {
        # Plain workloads select nodes as well, and are never stopped.
        "Fail": {"pods-placement.gpufence.dev": "Ignore"},
        # Neither taints nor the admission policies stop what names its node.
        "Ignore": {"pods-named-node.gpufence.dev": "Fail"},
    }
    assert found == {"pods.gpufence.dev": choice, **apart[choice], CUSTOM: "Ignore"}
    spec = default_spec() | {"failurePolicy": choice, "defaultAction": "warn", "rules": {}}
    assert webhooks(policy_of(spec))["pods.gpufence.dev"]["failurePolicy"] == choice


@pytest.mark.parametrize("mode", ["warn", "audit"])
def test_where_nothing_is_enforced_no_pod_waits(mode: Mode) -> None:
    policy = replace(default_policy(), mode=mode)
    for configuration in configurations(policy, Registration(url="https://a:1")):
        assert {each["failurePolicy"] for each in configuration["webhooks"]} == {"Ignore"}
        # A replica that hangs delays a Pod by the shortest timeout of an API server.
        assert {each["timeoutSeconds"] for each in configuration["webhooks"]} == {1}


def test_the_timeout_is_that_of_the_registration_where_the_policy_enforces() -> None:
    policy = policy_of({**default_spec(), "overrides": [{"namespaces": ["dev"], "mode": "audit"}]})
    mutating, validating = configurations(policy, Registration(url="https://a:1"))
    seconds = {
        each["name"]: each["timeoutSeconds"]
        for each in (*mutating["webhooks"], *validating["webhooks"])
    }
    assert seconds.pop("pods-observed.gpufence.dev") == 1
    assert set(seconds.values()) == {3}


def test_where_no_trespass_is_denied_nothing_fails_closed_in_spite_of_the_policy() -> None:
    warning = replace(default_policy(**{"pool-trespass": "warn"}), failure_policy="Ignore")
    assert {webhook["failurePolicy"] for webhook in webhooks(warning).values()} == {"Ignore"}


def test_custom_resources_whose_operators_merge_templates_are_not_sent() -> None:
    merged = {("flink.apache.org", "flinkdeployments"), ("trainer.kubeflow.org", "trainjobs")}
    workloads = tuple(CustomWorkloads(group, (resource,)) for group, resource in merged)
    policy = replace(default_policy(), custom_workloads=workloads)
    assert CUSTOM not in webhooks(policy)


def test_each_composed_kind_is_in_a_group_that_is_not_sent() -> None:
    assert {group for group, _ in COMPOSERS} == MERGING_GROUPS


def test_only_ephemeral_containers_and_resize_of_pod_subresources_are_sent() -> None:
    sent = {
        resource
        for webhook in webhooks(default_policy()).values()
        for rule in webhook["rules"]
        for resource in rule["resources"]
    }
    assert {resource for resource in sent if resource.startswith("pods/")} == {
        "pods/ephemeralcontainers",
        "pods/resize",
    }


def conditions(policy: Policy) -> str:
    validating = webhooks(policy)["pods.gpufence.dev"]
    return "\n".join(each["expression"] for each in validating["matchConditions"])


[PATH] = re.findall(r'path\.matches\(\s*"([^"]+)"\)', conditions(default_policy()))
DIRECTORY = re.compile(PATH)


def every_vendor() -> Policy:
    pools = [
        {
            "name": vendor.name,
            "resources": [vendor.resource],
            "nodeSelector": {"pool": vendor.name},
        }
        for vendor in known_vendors()
    ]
    return policy_of(default_spec() | {"pools": pools})


def test_the_conditions_name_what_the_rules_read() -> None:
    """Their constants are those of every vendor."""
    policy = every_vendor()
    read = {*ANNOTATIONS, *visible_devices_variables(policy), CUDA_VERSION}
    for name in (
        *read,
        *device_files(policy),
        *DAEMON_SET_CONTROLLERS,
        IMPLICIT_RESOURCE_PREFIX,
        DEVICE_MOUNTS,
        *EVERY_NODE,
    ):
        assert f'"{name}"' in conditions(policy)


def test_the_admission_policies_name_what_the_rules_read() -> None:
    trespass, _, leak, _ = map(str, admission_policies(every_vendor(), Registration()))
    for name in (*DAEMON_SET_CONTROLLERS, MIRROR_ANNOTATION, IMPLICIT_RESOURCE_PREFIX):
        assert f'"{name}"' in trespass
    for files in device_files(every_vendor()):
        assert f'"{files}"' in leak
    assert f"(^|,)({'|'.join(sorted(NO_DEVICES))})(,|$)" in leak


STEPS = ["", ".", "dev", "devices", "char", "dri", "nvidia0", "kfd", "fuse", "proc", "1", "root"]
PATHS = st.lists(st.sampled_from(STEPS), max_size=6).map("/".join)
RULES = dict.fromkeys(default_spec()["rules"], "off") | {"device-leak": "enforce"}


@given(path=PATHS, sub_path=PATHS)
@example(path="/dev", sub_path="nvidia0")
@example(path="/./dev//char", sub_path="195:0")
@example(path="/", sub_path="dev/./dri")
def test_law_a_device_path_with_a_finding_matches_the_condition(path: str, sub_path: str) -> None:
    policy = default_policy(**RULES)
    pod = plain_pod()
    pod["spec"]["volumes"] = [{"name": "v", "hostPath": {"path": path}}]
    mount = {"name": "v", "mountPath": "/v", "subPath": sub_path}
    pod["spec"]["containers"][0]["volumeMounts"] = [mount]
    if validate(pod, policy).findings:
        # RE2, which CEL uses, and Python read this expression alike.
        is_file = any(files in f"/{path}/" for files in device_files(policy))
        assert is_file or DIRECTORY.search(path) or "dev/" in sub_path
