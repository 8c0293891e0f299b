"""Stolen tokens: what a thief can do with the rights and the guards of the chart's accounts."""

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

from controlplane import policies
from controlplane.api import Api, ApiError
from controlplane.cluster import ControlPlane
from controlplane.kubectl import as_list
from controlplane.objects import pod
from controlplane.poll import until
from deploy.chart import NAMESPACE, RELEASE, Helm
from each import each
from in_tree import collection
from policies.document import PolicyError
from policies.finding import Mode
from reviewing import default_policy
from specs import JSON, default_spec, policy_of
from webhook.controller.text.objects import (
    POLICY_KIND,
    Registration,
    admission_policies,
    configurations,
)

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{RELEASE}-controller"
PATH = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
REGISTRATION = Registration(
    service=(NAMESPACE, RELEASE, 443), excluded_namespaces=frozenset({NAMESPACE})
)
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


def secret(name: str, **fields: Any) -> JSON:
    """Return a Secret with one key of the built-in CA."""
    return {"metadata": {"name": name}, "data": {"ca.crt": "eA=="}, **fields}


@pytest.fixture(scope="module")
def thief(control_plane: ControlPlane, helm: Helm) -> Iterator[Api]:
    """The API with the token of the controller, in a cluster with the chart's rights and guards."""
    admin = control_plane.api
    own = [
        obj
        for obj in helm.objects({})
        if obj["kind"].startswith(("ClusterRole", "Role", "Secret", "Service", "Validating"))
    ]
    names = {obj["metadata"]["name"] for obj in own}
    assert {f"{RELEASE}-{guard}-guard" for guard in ("registration", "secret")} < names
    control_plane.create_namespace(NAMESPACE)
    with policies.used(control_plane, default_spec()):
        control_plane.kubectl.create(*own)
        stolen = replace(admin, user=ACCOUNT, group="system:serviceaccounts")
        until(lambda: _denied(stolen, "mutating", _tweaked(*TO_THE_THIEF)), "one guard")
        until(lambda: _written(stolen, immutable=True), "another guard")
        yield stolen
        control_plane.kubectl("delete", "-f", "-", stdin=as_list(tuple(own)))
    control_plane.delete_namespaces(NAMESPACE)


def _denied(api: Api, sort: str, obj: JSON) -> str:
    """Return why the configuration cannot be created with every right; empty if it can."""
    return replace(api, group="system:masters").refusal(PATH.format(sort), obj)


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
    "another port, which drops packets": ("/clientConfig/service/port", 9, SERVICE),
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
    "objects of the whole cluster": ("/rules/0/scope", "*", RULES),
    "a custom resource that waits": _rule("cilium.io", "ciliumendpoints"),
    "kube-system": ("/namespaceSelector", {}, "must exclude calico-system, gpufence-system, kube-"),
    "calico-system": ("/namespaceSelector/matchExpressions/0/values", ["kube-system"], "exclude"),
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
        foreign = f"/webhooks/{len(OWN[1]['webhooks'])}"
        url = f"{foreign}/clientConfig/url"
        for operation in (
            {"op": "replace", "path": url, "value": "https://thief.example/review"},
            {"op": "remove", "path": foreign},
        ):
            with pytest.raises(ApiError, match=r"named \*\.gpufence\.dev only"):
                thief.request(*patched, [operation], JSON_PATCH)
    finally:
        control_plane.api.request("DELETE", f"{path}/{RELEASE}")


def test_the_registration_guard_does_not_limit_other_users(
    control_plane: ControlPlane, thief: Api
) -> None:
    assert _denied(thief, "mutating", _tweaked(*TO_THE_THIEF))
    assert _denied(control_plane.api, "mutating", _tweaked(*TO_THE_THIEF)) == ""


def _written(api: Api, name: str = "gpufence-ca", **fields: Any) -> str:
    """Return why a Secret cannot get these fields, or its metadata; empty if it can."""
    [live] = api.request("GET", f"{SECRETS}?fieldSelector=metadata.name%3D{name}")["items"]
    del live["metadata"]["resourceVersion"]
    live["metadata"] |= fields.pop("metadata", {})
    return api.refusal(f"{SECRETS}/{name}", {**secret(name), **live, **fields}, "PUT")


HELM = {"owner": "helm", "name": RELEASE, "status": "deployed", "version": "99"}
GONE = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "1"}
METADATA: dict[str, JSON] = {
    "a release of Helm": {"labels": HELM},
    "a copy of another Secret": {
        "annotations": {"replicator.v1.mittwald.de/replicate-from": "kube-system/admin"}
    },
    "what the garbage collector deletes": {"ownerReferences": [GONE]},
    "a finalizer that stays": {"finalizers": ["thief.example/never"]},
}
"""What a thief would make of a Secret that the controller may write."""


def test_the_controller_may_only_fill_its_two_secrets(thief: Api) -> None:
    forged = secret("sh.helm.release.v1.gpufence.v99", type="helm.sh/release.v1")
    token = secret("token", type="kubernetes.io/service-account-token")
    token["metadata"]["annotations"] = {"kubernetes.io/service-account.name": "default"}
    for made in (forged, token):
        assert "cannot create resource" in thief.refusal(SECRETS, made)
        with_every_right = replace(thief, group="system:masters")
        assert "may change only the data" in with_every_right.refusal(SECRETS, made)
    for name in ("gpufence-ca", "gpufence-serving"):
        assert _written(thief, name) == ""
        for metadata in METADATA.values():
            denied = _written(thief, name, metadata=metadata)
            assert "may change only the data of its Secrets" in denied
        for fields in ({"type": "kubernetes.io/tls"}, {"immutable": True}):
            assert _written(thief, name, **fields)
        other = "ca.key" if name == "gpufence-serving" else "release"
        denied = _written(thief, name, stringData={other: "x"})
        assert "may write only the CA and the serving certificate" in denied
        assert "cannot delete" in thief.refusal(f"{SECRETS}/{name}", {}, "DELETE")
    for path, verb in ((SECRETS, "list"), (f"{SECRETS}/another", "get")):
        with pytest.raises(ApiError, match=f"cannot {verb} resource"):
            thief.request("GET", path)


def test_whatever_the_controller_writes_its_policies_judge_pods_only(
    control_plane: ControlPlane, thief: Api
) -> None:
    """As its binding limits it, which only an administrator may write."""
    admin = control_plane.api
    policy, binding, *_ = admission_policies(default_policy(), Registration())
    everything = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
    policy["spec"] = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [everything]},
        "validations": [{"expression": "false", "message": "stopped by a thief"}],
    }
    at, name = collection(POLICY_KIND), policy["metadata"]["name"]
    thief.request("PATCH", f"{at}/{name}?fieldManager=thief&force=true", policy, APPLY)
    pods, lease = "/api/v1/namespaces/{}/pods", {"metadata": {"name": "node"}}
    until(lambda: "by a thief" in admin.refusal(pods.format("default"), pod()), "the policy")
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    for path, obj in (
        (leases, lease),
        (SECRETS, secret("other")),
        ("/api/v1/namespaces", {"metadata": {"name": "other"}}),
        (pods.format("kube-system"), pod()),
        (pods.format(NAMESPACE), pod()),
    ):
        assert admin.refusal(path, obj) == "", path
    bindings = collection(binding["kind"])
    for path, obj in (
        (f"{at}/gpufence-pods", policy),
        (f"{at}/gpufence-secret-guard", policy),
        (f"{bindings}/{name}", binding),
        (f"{bindings}/gpufence-pods", binding),
    ):
        obj = {**obj, "metadata": {"name": path.rpartition("/")[2]}}
        with pytest.raises(ApiError, match="cannot patch resource"):
            thief.request("PATCH", f"{path}?fieldManager=thief&force=true", obj, APPLY)
        with pytest.raises(ApiError, match="cannot delete resource"):
            thief.request("DELETE", path)
    thief.request("DELETE", f"{at}/{name}")


def test_the_status_of_the_policy_is_all_that_the_controller_changes_of_it(
    control_plane: ControlPlane, thief: Api
) -> None:
    path = f"{policies.PATH}/{RELEASE}"
    before = control_plane.api.request("GET", path)
    patch: JSON = {"metadata": METADATA["a finalizer that stays"] | {"ownerReferences": [GONE]}}
    patch["spec"] = {"mode": "audit"}
    thief.request("PATCH", f"{path}/status", patch, MERGE)
    after = control_plane.api.request("GET", path)
    assert after["spec"] == before["spec"]
    assert not {"finalizers", "ownerReferences"} & after["metadata"].keys()
    with pytest.raises(ApiError, match="cannot patch resource"):
        thief.request("PATCH", path, patch, MERGE)
