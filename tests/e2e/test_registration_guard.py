"""A stolen token of gpufence's controller: what it can make of the webhook configurations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.api import Api, ApiError
from controlplane.cluster import ControlPlane
from controlplane.poll import until
from deploy.chart import NAMESPACE, RELEASE, Helm
from each import each
from in_tree import collection
from policies.document import PolicyError
from policies.finding import Mode
from reviewing import default_policy
from specs import default_spec, policy_of
from webhook.controller.text.objects import Registration, configurations

JSON = dict[str, Any]
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{RELEASE}-controller"
PATH = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations"
REGISTRATION = Registration(service=(NAMESPACE, RELEASE, 443))
OWN = configurations(default_policy(), REGISTRATION)
FOREIGN = {
    "name": "of.another.product",
    "clientConfig": {"url": "https://another.example:443/review"},
    "rules": [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["configmaps"],
            "operations": ["CREATE"],
        }
    ],
    "failurePolicy": "Ignore",
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "namespaceSelector": {"matchLabels": {"no-namespace": "has-it"}},
}


@pytest.fixture(scope="module")
def thief(control_plane: ControlPlane, helm: Helm) -> Iterator[Api]:
    """The API as the service account uses it, with every right that RBAC can give."""
    admin = control_plane.api
    guard = [
        obj
        for obj in helm.objects({})
        if obj["kind"].startswith("ValidatingAdmissionPolicy")
        and obj["metadata"]["name"] == f"{RELEASE}-registration-guard"
    ]
    assert len(guard) == 2
    for obj in guard:
        admin.request("POST", collection(obj["kind"]), obj)
    stolen = replace(admin, user=ACCOUNT)
    until(lambda: _denied(stolen, "mutating", _tweaked(*TO_THE_THIEF)), "the guard to be in force")
    yield stolen
    for obj in guard:
        admin.request("DELETE", f"{collection(obj['kind'])}/{obj['metadata']['name']}")


def _denied(api: Api, sort: str, obj: JSON) -> str:
    """Return why the configuration cannot be created; empty if it can."""
    return api.refusal(PATH.format(sort), obj)


def _tweaked(path: str, value: Any, configuration: int = 0) -> JSON:
    """Return gpufence's own configuration with another field in its first webhook."""
    operation = {"op": "add", "path": f"/webhooks/0{path}", "value": value}
    tweaked: JSON = jsonpatch.apply_patch(OWN[configuration], [operation])
    return tweaked


def _rule(group: str, *resources: str) -> tuple[str, JSON, str]:
    rule = {**OWN[0]["webhooks"][0]["rules"][0], "apiGroups": [group], "resources": resources}
    return "/rules/-", rule, RULES


SERVICE = "may send reviews to the Service"
RULES = "for Pods, workloads and custom resources only"
TO_THE_THIEF = ("/clientConfig", {"url": "https://thief.example/mutate"})
ATTACKS: dict[str, tuple[str, Any, str]] = {
    "a URL": (*TO_THE_THIEF, SERVICE),
    "another Service": ("/clientConfig/service/name", "another", SERVICE),
    "the Service of that name elsewhere": ("/clientConfig/service/namespace", "default", SERVICE),
    "another path": ("/clientConfig/service/path", "/metrics", SERVICE),
    "Secrets": _rule("", "secrets"),
    "all core resources": _rule("", "*"),
    "the exec subresource": _rule("", "pods/exec"),
    "all groups": _rule("*", "*"),
    "roles": _rule("rbac.authorization.k8s.io", "clusterroles"),
    "token reviews": _rule("authentication.k8s.io", "tokenreviews"),
    "all of a custom group": _rule("ray.io", "*"),
    "two groups in one rule": ("/rules/0/apiGroups", ["", "rbac.authorization.k8s.io"], RULES),
    "deletions": ("/rules/0/operations", ["DELETE"], RULES),
    "kube-system": ("/namespaceSelector", {}, "must exclude namespace kube-system"),
    "a webhook of another name": (
        "/name",
        "secrets.thief.example",
        "may write webhooks named *.gpufence.dev only",
    ),
}
"""Where a thief changes a webhook, to what, and why that is denied."""


JSON_PATCH = "application/json-patch+json"


SORTS = ("mutating", "validating")


def test_the_service_account_cannot_register_other_webhooks(thief: Api) -> None:
    for sort, own in zip(SORTS, OWN, strict=True):
        assert _denied(thief, sort, own) == ""

    def is_denied(case: tuple[int, str]) -> None:
        configuration, (path, value, message) = case[0], ATTACKS[case[1]]
        tweaked = _tweaked(path, value, configuration)
        assert message in _denied(thief, SORTS[configuration], tweaked)

    each(product((0, 1), ATTACKS), is_denied)


GROUPS = st.from_regex(r"[a-z0-9]{1,2}(\.[a-z0-9]{1,2}){0,2}(\.(x-)?k8s\.io)?", fullmatch=True)
KNOWN_GROUPS = st.sampled_from(
    ["kubeflow.org", "k8s.io", "sparkoperator.k8s.io", "x.sparkoperator.k8s.io", "storage.k8s.io"]
)
NAMES = st.lists(st.from_regex(r"[a-z]([-a-z]{0,2}[a-z])?", fullmatch=True), min_size=1, max_size=3)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_law_the_guard_admits_what_the_controller_writes_for_a_valid_policy(
    thief: Api, data: st.DataObject
) -> None:
    """And no webhook for another custom resource."""
    group = data.draw(GROUPS | KNOWN_GROUPS)
    namespaces, modes = data.draw(NAMES), st.sampled_from(get_args(Mode))
    spec = default_spec() | {
        "mode": data.draw(modes),
        "failurePolicy": data.draw(st.sampled_from(["Fail", "Ignore"])),
        "customWorkloads": [{"group": group, "resources": data.draw(NAMES)}],
        "exemptions": {"namespaces": namespaces, "usernames": namespaces},
        "overrides": [{"namespaces": [f"{namespaces[0]}*"], "mode": data.draw(modes)}],
    }
    policy = None
    with suppress(PolicyError):
        policy = policy_of(spec)
    if policy is None:
        path, rule, message = _rule(group, "widgets")
        assert message in _denied(thief, "validating", _tweaked(path, rule, 1))
    else:
        written = configurations(policy, REGISTRATION)
        assert [_denied(thief, *each) for each in zip(SORTS, written, strict=True)] == ["", ""]


def test_the_service_account_cannot_change_webhooks_of_other_products(
    control_plane: ControlPlane, thief: Api
) -> None:
    path = PATH.format("validating")
    shared = {**OWN[1], "webhooks": [*OWN[1]["webhooks"], FOREIGN]}
    control_plane.api.request("POST", path, shared)
    try:
        patched = ("PATCH", f"{path}/{RELEASE}?dryRun=All")
        seconds = {"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 7}
        thief.request(*patched, [seconds], JSON_PATCH)
        foreign = f"/webhooks/{len(OWN[1]['webhooks'])}/clientConfig/url"
        url = {"op": "replace", "path": foreign, "value": "https://thief.example/review"}
        with pytest.raises(ApiError, match=r"named \*\.gpufence\.dev only"):
            thief.request(*patched, [url], JSON_PATCH)
    finally:
        control_plane.api.request("DELETE", f"{path}/{RELEASE}")


def test_the_registration_guard_does_not_limit_other_users(
    control_plane: ControlPlane, thief: Api
) -> None:
    assert _denied(thief, "mutating", _tweaked(*TO_THE_THIEF))
    assert _denied(control_plane.api, "mutating", _tweaked(*TO_THE_THIEF)) == ""
