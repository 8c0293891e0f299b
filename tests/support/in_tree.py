"""The in-tree policies on a real API server, without any webhook."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from controlplane.api import Api, ApiError
from controlplane.cluster import ControlPlane
from controlplane.poll import until
from policies.policy import Policy
from webhook.registration.admission_policies.objects import (
    API_VERSION,
    BINDING_KIND,
    POLICY_KIND,
    Target,
    admission_policies,
)

JSON = dict[str, Any]

SETUP_USER = "setup"
"""A user whom every policy here exempts: creates what a test then updates."""

_NUMBERS = itertools.count()
_COLLECTIONS = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "CronJob": "/apis/batch/v1/namespaces/{}/cronjobs",
    "ReplicationController": "/api/v1/namespaces/{}/replicationcontrollers",
    "PodTemplate": "/api/v1/namespaces/{}/podtemplates",
}


@dataclass(frozen=True)
class Outcome:
    """What the API server makes of an object: ``invalid`` is its own validation's word."""

    verdict: Literal["accepted", "invalid", "denied"]
    message: str = ""
    object: JSON | None = None


def path_of(obj: JSON, namespace: str) -> str | None:
    """Return the collection of the object; None where the API server does not serve its kind."""
    path = _COLLECTIONS.get(obj["kind"])
    if path is None or not path.startswith(
        f"/api/{obj['apiVersion']}/"
        if "/" not in obj["apiVersion"]
        else f"/apis/{obj['apiVersion']}/"
    ):
        return None
    return path.format(namespace)


class InTree:
    """The registered policies of one FencePolicy."""

    def __init__(self, cluster: ControlPlane, policy: Policy, name: str) -> None:
        self.cluster = cluster
        self.policy = policy
        self.name = name

    def api(self, user: str) -> Api:
        return replace(self.cluster.api, user=user)

    def create(self, obj: JSON, namespace: str = "default", user: str = "alice") -> Outcome:
        """Create the object as a dry run."""
        path = path_of(obj, namespace)
        assert path is not None, obj["kind"]
        return self._send("POST", path, obj, user)

    def update(
        self, obj: JSON, namespace: str = "default", user: str = "alice", subresource: str = ""
    ) -> Outcome:
        """Replace the object as a dry run."""
        path = path_of(obj, namespace)
        assert path is not None, obj["kind"]
        tail = f"/{subresource}" if subresource else ""
        return self._send("PUT", f"{path}/{obj['metadata']['name']}{tail}", obj, user)

    def _send(self, method: str, path: str, obj: JSON, user: str) -> Outcome:
        try:
            made = self.api(user).request(method, f"{path}?dryRun=All", obj)
        except ApiError as error:
            if f"'{self.name}-" in str(error) and "ValidatingAdmissionPolicy" in str(error):
                return Outcome("denied", str(error))
            if error.status in (400, 403, 404, 422):
                return Outcome("invalid", str(error))
            raise
        return Outcome("accepted", object=made)


@contextmanager
def in_tree(cluster: ControlPlane, policy: Policy, **fields: Any) -> Iterator[InTree]:
    """Register the policies inside the block only, under a separate name."""
    name = f"in-tree-{next(_NUMBERS)}"
    exemptions = replace(policy.exemptions, usernames=policy.exemptions.usernames | {SETUP_USER})
    objects = (
        *admission_policies(replace(policy, exemptions=exemptions), Target(name=name, **fields)),
        *_sentinel(name),
    )
    api = cluster.api
    try:
        for obj in objects:
            api.request("POST", collection(obj["kind"]), obj)
        until(lambda: _denies_sentinel(api, name), "the API server to know the policies")
        yield InTree(cluster, policy, name)
    finally:
        for obj in reversed(objects):
            with suppress(ApiError):
                api.request("DELETE", f"{collection(obj['kind'])}/{obj['metadata']['name']}")
        until(lambda: not _denies_sentinel(api, name), "the API server to forget the policies")


def _sentinel(name: str) -> tuple[JSON, JSON]:
    """Return a policy, and its binding, that shows that the API server knows all before it.

    The API server sees the objects of each kind in the order in which they were created.
    """
    name = f"{name}-sentinel"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
    }
    named = {"name": "is-the-probe", "expression": f'object.metadata.name == "{name}"'}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [named],
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
