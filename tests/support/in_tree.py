"""The in-tree policies on a real API server, without any webhook."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from cases.loading import Case, cases_of_check, cases_of_mutation
from controlplane.api import Api, ApiError
from controlplane.cluster import ControlPlane
from controlplane.poll import until
from policies.kubernetes.field_types import NameSet
from policies.kubernetes.scheduling import Taint
from policies.policy import Policy, Pool
from policies.registry import CHECKS, RULES
from specs import JSON
from strategies import policies
from valid_strategies import WORKLOADS
from webhook.controller.text.objects import (
    BINDING_KIND,
    POLICY_KIND,
    Registration,
    admission_policies,
)
from webhook.registered import API_VERSION

LABEL = "in-tree"
"""Names the line that an object is sent to."""
SETUP_USER = "setup"
"""A user that the policies exempt, who creates objects that a test then updates."""

_NUMBERS = itertools.count()
_COLLECTIONS = {"Pod": ("v1", "/api/v1/namespaces/{}/pods"), **WORKLOADS}


@dataclass(frozen=True)
class Outcome:
    """The API server's verdict on an object; ``invalid`` comes from its own validation."""

    verdict: Literal["accepted", "invalid", "denied"]
    message: str = ""
    object: JSON | None = None


def path_of(obj: JSON, namespace: str) -> str | None:
    """Return the collection of the object; None if the API server does not serve its kind."""
    version, path = _COLLECTIONS.get(obj["kind"], ("", ""))
    return path.format(namespace) if version == obj["apiVersion"] else None


class InTree:
    """The registered policies of one FencePolicy.

    If it is ``labeled``, they apply only to the objects that are sent here, which get a label.
    """

    def __init__(
        self, cluster: ControlPlane, policy: Policy, *, labeled: bool = False, name: str = ""
    ) -> None:
        self.cluster = cluster
        self.policy = policy
        self.name = name or f"in-tree-{next(_NUMBERS)}"
        self.api = cache(lambda user: replace(cluster.api, user=user))
        """The client that impersonates a user."""
        self._label = {LABEL: self.name} if labeled else {}

    @property
    def registered_policy(self) -> Policy:
        """The policy, which exempts SETUP_USER as well."""
        exempt = self.policy.exemptions
        exempt = replace(exempt, usernames=exempt.usernames | {SETUP_USER})
        return replace(self.policy, exemptions=exempt)

    def objects(self) -> tuple[JSON, ...]:
        """Return the policies, each followed by its binding."""
        objects = admission_policies(self.registered_policy, Registration(name=self.name))
        for obj in objects:
            if self._label and obj["kind"] == BINDING_KIND:
                selected = {"objectSelector": {"matchLabels": self._label}}
                obj["spec"]["matchResources"] = obj["spec"].get("matchResources", {}) | selected
        return objects

    def create(self, obj: JSON, namespace: str = "default", user: str = "alice") -> Outcome:
        """Create the object as a dry run."""
        path = path_of(obj, namespace)
        assert path is not None, obj["kind"]
        return self._send("POST", path, self.labeled(obj), user)

    def labeled(self, obj: JSON) -> JSON:
        """Return the object as it is sent."""
        metadata = obj.get("metadata", {})
        labels = {**(metadata.get("labels") or {}), **self._label}
        return {**obj, "metadata": {**metadata, "labels": labels}} if self._label else obj

    def update(
        self, obj: JSON, namespace: str = "default", user: str = "alice", subresource: str = ""
    ) -> Outcome:
        """Replace the object as a dry run."""
        path = path_of(obj, namespace)
        assert path is not None, obj["kind"]
        tail = f"/{subresource}" if subresource else ""
        url = f"{path}/{obj['metadata']['name']}{tail}"
        return self._send("PUT", url, self.labeled(obj), user)

    def _send(self, method: str, path: str, obj: JSON, user: str) -> Outcome:
        try:
            admitted = self.api(user).request(method, f"{path}?dryRun=All", obj)
        except ApiError as error:
            if f"'{self.name}-" in str(error) and "ValidatingAdmissionPolicy" in str(error):
                return Outcome("denied", str(error))
            if error.status in (400, 403, 404, 422):
                return Outcome("invalid", str(error))
            raise
        return Outcome("accepted", object=admitted)


@contextmanager
def in_tree(
    cluster: ControlPlane, policy: Policy, name: str = "", *, denies_all: bool = False
) -> Iterator[InTree]:
    """Register the policies inside the block only, under a separate name or this one.

    If it ``denies_all``, each denies whatever its conditions match.
    """
    line = InTree(cluster, policy, name=name)
    changed = {"validations": [{"expression": "false"}]} if denies_all else {}
    objects = (
        {**each, "spec": {**each["spec"], **changed}} if each["kind"] == POLICY_KIND else each
        for each in line.objects()
    )
    with _registered(cluster.api, line.name, objects):
        yield line


@contextmanager
def in_trees(cluster: ControlPlane, policies: Iterable[Policy]) -> Iterator[list[InTree]]:
    """Register the policies of several FencePolicies inside the block, and yield the lines."""
    lines = [InTree(cluster, policy, labeled=True) for policy in policies]
    objects = [obj for line in lines for obj in line.objects()]
    with _registered(cluster.api, lines[-1].name, objects, forgotten=False):
        yield lines


@contextmanager
def _registered(
    api: Api, name: str, given: Iterable[JSON], *, forgotten: bool = True
) -> Iterator[None]:
    """Register objects inside the block only, and wait until they are ``forgotten``."""
    objects = [*given, *_sentinel(name)]
    try:
        for obj in objects:
            api.request("POST", collection(obj["kind"]), obj)
        until(lambda: _denies_sentinel(api, name), "the API server to know the policies")
        yield
    finally:
        # The sentinel comes last here, too: an API server that lacks it lacks all others.
        for obj in objects:
            with suppress(ApiError):
                api.request("DELETE", f"{collection(obj['kind'])}/{obj['metadata']['name']}")
        if forgotten:
            until(lambda: not _denies_sentinel(api, name), "the API server to forget the policies")


def _sentinel(name: str) -> tuple[JSON, JSON]:
    """Return a policy, and its binding, that shows that the API server knows all before it.

    The API server sees objects of a kind in the order in which they are created, and deleted.
    """
    name = f"{name}-sentinel"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
    }
    condition = {"name": "is-the-probe", "expression": f'object.metadata.name == "{name}"'}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [condition],
        "validations": [{"expression": "false"}],
    }
    bound = {"policyName": name, "validationActions": ["Deny"]}
    return (
        {"apiVersion": API_VERSION, "kind": POLICY_KIND, "metadata": {"name": name}, "spec": spec},
        {
            "apiVersion": API_VERSION,
            "kind": BINDING_KIND,
            "metadata": {"name": name},
            "spec": bound,
        },
    )


def _denies_sentinel(api: Api, name: str) -> bool:
    path = "/api/v1/namespaces/default/configmaps?dryRun=All"
    try:
        api.request("POST", path, {"metadata": {"name": f"{name}-sentinel"}})
    except ApiError as error:
        return error.status in (403, 422)
    return False


def collection(kind: str) -> str:
    """Return the collection of policies or of bindings."""
    plural = "policies" if kind == POLICY_KIND else "policybindings"
    return f"/apis/{API_VERSION}/validatingadmission{plural}"


def all_cases() -> list[Case]:
    """Return every case that is a Pod or a workload."""
    checks = {check.id for check in CHECKS}
    found = [
        case
        for rule in RULES
        for case in (cases_of_check if rule.id in checks else cases_of_mutation)(rule.id)
    ]
    return [case for case in found if path_of(case.read()[0], "default")]


def kept_cases(cluster: ControlPlane) -> list[Case]:
    """Return the cases whose fields the API server keeps: before 1.34 it drops resource claims."""
    groups = cluster.api.request("GET", "/apis")["groups"]
    served = {version["groupVersion"] for group in groups for version in group["versions"]}
    return [
        case
        for case in all_cases()
        if "resource.k8s.io/v1" in served or "resourceClaim" not in json.dumps(case.read()[0])
    ]


def create_runtime_class(cluster: ControlPlane, name: str) -> None:
    """Create it where it is not there yet: the API server admits no Pod with another one."""
    with suppress(ApiError):
        made = {"metadata": {"name": name}, "handler": "runc"}
        cluster.api.request("POST", "/apis/node.k8s.io/v1/runtimeclasses", made)


def of_pools(count: int) -> Policy:
    """Return a policy of so many pools, NVIDIA's among them, without exemptions."""
    policy = policies()["one taint"]
    others = tuple(
        Pool(
            name=f"pool-{n}",
            resources=NameSet([f"vendor-{n}.example/gpu"]),
            taints=(Taint(f"vendor-{n}.example/gpu", "NoSchedule"),),
            node_selector={f"vendor-{n}.example/present": "true"},
        )
        for n in range(count - 1)
    )
    return replace(policy, pools=(*policy.pools, *others))
