"""A stolen token of gpufence's service account: what it can make of the webhook configurations."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from controlplane.api import Api, ApiError
from controlplane.cluster import ControlPlane
from controlplane.poll import until
from deploy.chart import NAMESPACE, RELEASE, Helm
from in_tree import collection
from reviewing import default_policy
from webhook.cel.configurations import Registration, configurations

JSON = dict[str, Any]
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"
PATH = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations"
OWN = configurations(default_policy(), Registration(service=(NAMESPACE, RELEASE, 443)))
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
    until(lambda: _denied(stolen, "mutating", _tweaked(_url)), "the guard to be in force")
    yield stolen
    for obj in guard:
        admin.request("DELETE", f"{collection(obj['kind'])}/{obj['metadata']['name']}")


def _denied(api: Api, sort: str, obj: JSON) -> str:
    """Return why the configuration cannot be created (dry run); empty if it can."""
    try:
        api.request("POST", f"{PATH.format(sort)}?dryRun=All", obj)
    except ApiError as error:
        if error.status != 403:
            raise
        return str(error)
    return ""


def _tweaked(change: Callable[[JSON], object], configuration: int = 0) -> JSON:
    made = copy.deepcopy(OWN[configuration])
    change(made["webhooks"][0])
    return made


def _url(webhook: JSON) -> None:
    webhook["clientConfig"] = {"url": "https://thief.example/mutate"}


def _service(webhook: JSON) -> None:
    webhook["clientConfig"]["service"]["name"] = "another"


def _namespace(webhook: JSON) -> None:
    webhook["clientConfig"]["service"]["namespace"] = "default"


def _path(webhook: JSON) -> None:
    webhook["clientConfig"]["service"]["path"] = "/metrics"


def _rule(group: str, *resources: str) -> Callable[[JSON], None]:
    def change(webhook: JSON) -> None:
        rule = {**webhook["rules"][0], "apiGroups": [group], "resources": list(resources)}
        webhook["rules"].append(rule)

    return change


def _two_groups(webhook: JSON) -> None:
    webhook["rules"][0]["apiGroups"] = ["", "rbac.authorization.k8s.io"]


def _deletion(webhook: JSON) -> None:
    webhook["rules"][0]["operations"] = ["DELETE"]


def _every_namespace(webhook: JSON) -> None:
    webhook["namespaceSelector"] = {}


def _name(webhook: JSON) -> None:
    webhook["name"] = "secrets.thief.example"


ATTACKS: dict[str, tuple[Callable[[JSON], object], str]] = {
    "a URL": (_url, "may send reviews to the Service"),
    "another Service": (_service, "may send reviews to the Service"),
    "the Service of that name elsewhere": (_namespace, "may send reviews to the Service"),
    "another path": (_path, "may send reviews to the Service"),
    "Secrets": (_rule("", "secrets"), "for Pods, workloads and custom resources only"),
    "all core resources": (_rule("", "*"), "for Pods, workloads and custom resources only"),
    "the exec subresource": (_rule("", "pods/exec"), "for Pods, workloads and custom"),
    "all groups": (_rule("*", "*"), "for Pods, workloads and custom resources only"),
    "roles": (_rule("rbac.authorization.k8s.io", "clusterroles"), "for Pods, workloads"),
    "token reviews": (_rule("authentication.k8s.io", "tokenreviews"), "for Pods, workloads"),
    "all of a custom group": (_rule("ray.io", "*"), "for Pods, workloads and custom"),
    "two groups in one rule": (_two_groups, "for Pods, workloads and custom resources only"),
    "deletions": (_deletion, "for Pods, workloads and custom resources only"),
    "kube-system": (_every_namespace, "must exclude namespace kube-system"),
    "a webhook of another name": (_name, "may write webhooks named *.gpufence.dev only"),
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("configuration", [0, 1], ids=["mutating", "validating"])
def test_the_service_account_cannot_register_other_webhooks(
    thief: Api, attack: str, configuration: int
) -> None:
    change, message = ATTACKS[attack]
    sort = ("mutating", "validating")[configuration]
    assert message in _denied(thief, sort, _tweaked(change, configuration))


@pytest.mark.parametrize("configuration", [0, 1], ids=["mutating", "validating"])
def test_the_service_account_can_register_gpufence(thief: Api, configuration: int) -> None:
    assert _denied(thief, ("mutating", "validating")[configuration], OWN[configuration]) == ""


def test_the_service_account_cannot_change_webhooks_of_other_products(
    control_plane: ControlPlane, thief: Api
) -> None:
    path = PATH.format("validating")
    shared = {**OWN[1], "webhooks": [*OWN[1]["webhooks"], FOREIGN]}
    control_plane.api.request("POST", path, shared)
    try:
        found = control_plane.api.request("GET", f"{path}/{RELEASE}")
        written = f"{path}/{RELEASE}?dryRun=All"
        found["webhooks"][0]["timeoutSeconds"] = 7
        thief.request("PUT", written, found)
        found["webhooks"][-1]["clientConfig"]["url"] = "https://thief.example/review"
        with pytest.raises(ApiError, match=r"named \*\.gpufence\.dev only"):
            thief.request("PUT", written, found)
    finally:
        control_plane.api.request("DELETE", f"{path}/{RELEASE}")


def test_the_registration_guard_does_not_limit_other_users(
    control_plane: ControlPlane, thief: Api
) -> None:
    assert _denied(thief, "mutating", _tweaked(_url))
    assert _denied(control_plane.api, "mutating", _tweaked(_url)) == ""
