"""The rights of both service accounts, and what fails without one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from policies.api_servers import IN_TREE_RULES
from policies.context import Fact
from policies.kubernetes.objects import JSONObject
from policies.wording import listing
from webhook.controller.text.objects import Registration
from webhook.kube.writer import KubeWriter

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_ADMISSION = "admissionregistration.k8s.io"
_CONFIGURATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_POLICIES, _BINDINGS = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
_DRA = ("deviceclasses", "resourceslices")
_FOLLOW = ("list", "watch")


class Right(NamedTuple):
    """Verbs on resources; on objects of these names, or on all. ``lost`` is what fails without."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    lost: str
    names: tuple[str, ...] = ("",)
    namespace: str = ""


def of_replicas(name: str, followed: str, facts: Mapping[Fact, str]) -> Iterator[Right]:
    """Yield what replicas need; ``facts`` says what they do without each fact that they use."""
    policy = "replicas cannot follow the FencePolicy"
    yield Right("gpufence.dev", ("fencepolicies",), _FOLLOW, policy, (followed,))
    trust = "replicas cannot tell whether API servers trust their certificate"
    yield Right(_ADMISSION, _CONFIGURATIONS, ("get",), trust, (name,))
    groups = {"runtimeclasses": "node.k8s.io", "nodes": "", "namespaces": ""}
    for fact, lost in facts.items():
        yield Right(groups.get(fact, "resource.k8s.io"), (fact,), _FOLLOW, lost)
    if facts:
        claims = "Pods with resource claims are denied"
        yield Right(
            "resource.k8s.io", ("resourceclaims", "resourceclaimtemplates"), ("get",), claims
        )


def of_controller(
    registration: Registration,
    namespace: str,
    secrets: tuple[str, ...],
    *,
    admission_policies: bool,
) -> Iterator[Right]:
    """Yield what the controller needs. ``secrets`` has the serving one, and that of its own CA."""
    name = registration.name
    writes = "it cannot register or repair"
    writing = (*_FOLLOW, "create", "patch", "update")
    yield Right(_ADMISSION, _CONFIGURATIONS, writing, f"{writes} webhook configurations", (name,))
    in_tree = tuple(f"{name}-{rule}" for rule in sorted(IN_TREE_RULES))
    if admission_policies:
        lost = f"{writes} admission policies"
        yield Right(_ADMISSION, (_POLICIES,), (*writing, "delete"), lost, in_tree)
        yield Right(_ADMISSION, (_BINDINGS,), _FOLLOW, lost, in_tree)
    verbs = _FOLLOW if len(secrets) == 1 else (*_FOLLOW, "update")
    yield Right("", ("secrets",), verbs, "it cannot keep certificates", secrets, namespace)
    lost = "it cannot tell whether a replica can answer"
    yield Right("discovery.k8s.io", ("endpointslices",), ("list",), lost, namespace=namespace)
    lost = "it cannot name the owner of what it writes"
    roles = (name, "fencepolicies-view")
    yield Right("rbac.authorization.k8s.io", ("clusterroles",), _FOLLOW, lost, roles)
    if policy := registration.fence_policy:
        lost = "it cannot follow the FencePolicy"
        yield Right("gpufence.dev", ("fencepolicies",), _FOLLOW, lost, (policy,))
        lost = "it cannot write the status of the FencePolicy"
        yield Right("gpufence.dev", ("fencepolicies/status",), ("patch",), lost, (policy,))
    if registration.with_nodes:
        lost = "the status of the FencePolicy does not say whether nodes fit"
        yield Right("", ("nodes",), _FOLLOW, lost)
        yield Right("resource.k8s.io", _DRA, _FOLLOW, lost)


async def lacking(api: KubeWriter, account: str, right: Right) -> str:
    """Return what the account may not do of the right, as words; empty if it may do all.

    Raises:
        ClusterError: a request failed.
    """
    denied: dict[str, list[str]] = {}
    for resource in right.resources:
        for name in right.names:
            for verb in right.verbs:
                if not await _may(api, account, right, resource, name, verb):
                    denied.setdefault(f"{resource} {name}".rstrip(), []).append(verb)
    return "; ".join(f"{listing(verbs)} {what}" for what, verbs in denied.items())


async def _may(
    api: KubeWriter, account: str, right: Right, resource: str, name: str, verb: str
) -> bool:
    _, _, namespace, _ = account.split(":")
    accounts = "system:serviceaccounts"
    resource, _, subresource = resource.partition("/")
    attributes = {
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "name": name,
        "namespace": right.namespace,
        "verb": verb,
    }
    review: JSONObject = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": account,
            "groups": [accounts, f"{accounts}:{namespace}", "system:authenticated"],
            "resourceAttributes": {key: value for key, value in attributes.items() if value},
        },
    }
    answer = await api.create(_REVIEWS, review)
    return bool((answer.get("status") or {}).get("allowed"))
